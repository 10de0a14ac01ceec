package sample

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// welcome are the first documents of workspace "demo", so that the first question to a new server
// has an answer. They are ordinary documents: a sync can replace and delete them, and they are not
// restored.
var welcome = []sqlite.Document{
	{
		ID: "what-this-is", Title: "What this chat is", URL: "https://example.com/help/what-this-is",
		Text: "This chat is the sample backend of Weir. It answers from the documents that a workspace has synced, and quotes " +
			"the passage that fits a question best. It understands no language: it searches, and reports if it finds nothing.",
	},
	{
		ID: "limits", Title: "How many messages you may send", URL: "https://example.com/help/limits",
		Text: "A conversation has a budget of 300 requests a minute: messages, events and conversations together. Leads have 30 " +
			"a minute, coupons 120. Every answer shows how much is left, in X-RateLimit-Remaining, and when all of it is back, " +
			"in X-RateLimit-Reset.",
	},
	{
		ID: "too-many-requests", Title: "When you are asked to slow down", URL: "https://example.com/help/too-many-requests",
		Text: "A request over the limit is answered 429, in your browser's language, and costs nothing. Wait for as many seconds as " +
			"Retry-After says, and the next one is served. The demo page does that by itself, and keeps what you have typed.",
	},
	{
		ID: "documents", Title: "Adding documents of your own", URL: "https://example.com/help/documents",
		Text: "Make an API token with weir token create --workspace demo, and send up to 500 documents at a time with " +
			"PUT /v1/wp/documents. The very next answer knows them. A token has 60 requests a minute.",
	},
	{
		ID: "returns", Title: "Returns and refunds", URL: "https://example.com/help/returns",
		Text: "You can return anything within 30 days, for any reason. Put it back into its parcel with the label that came with it; " +
			"the refund reaches your account within five working days of its arrival.",
	},
	{
		ID: "shipping", Title: "Shipping times and costs", URL: "https://example.com/help/shipping",
		Text: "Orders leave our house within one working day. Standard shipping takes two to four days and is free from 50 euros; " +
			"with the coupon WELCOME10 ten percent is taken off any order.",
	},
}

// welcomeCoupon is the coupon that the documents mention.
var welcomeCoupon = sqlite.Coupon{Code: "WELCOME10", Percent: 10}

// seedDemo stores the first documents and the coupon in the workspace. If there is no room for
// them, it logs that and returns nil.
func (b *Backend) seedDemo(ctx context.Context, workspace string) error {
	_, err := b.db.PutDocuments(ctx, workspace, welcome, b.now())
	if err == nil {
		_, err = b.db.PutCoupons(ctx, workspace, []sqlite.Coupon{welcomeCoupon}, b.now())
	}
	switch {
	case errors.Is(err, sqlite.ErrFull):
		b.log.Warn("sample backend: no room for the first documents", "workspace", workspace, "error", err)
		return nil
	case err != nil:
		return fmt.Errorf("store the first documents: %w", err)
	}
	return nil
}
