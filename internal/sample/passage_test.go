package sample

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirlimit/weir/internal/sample/terms"
)

// worth gives every term of a question the same weight.
func worth(question string) map[string]float64 {
	all := map[string]float64{}
	for t := range terms.Of(question) {
		all[t.Text] = 1
	}
	return all
}

func TestAPassageIsTheSentencesThatSayMost(t *testing.T) {
	filler := strings.Repeat("Nothing of this is of interest to anybody. ", 40)
	long := "One clause follows another, " + strings.Repeat("and then there is some more of it, ", 30) + "until the refund is named, " + strings.Repeat("and on it goes and goes, ", 30) + "end."
	for name, c := range map[string]struct{ text, question, want string }{
		"the whole of a short text":     {"  We refund within 14 days.\n", "refund", "We refund within 14 days."},
		"the start where nothing fits":  {"First. Second.", "refund", "First. Second."},
		"nothing of no text":            {" \n", "refund", ""},
		"a sentence far inside":         {filler + "\n\nA refund takes 3.5 days, e.g. by card. Ask us!\n\n" + filler, "refund card", "A refund takes 3.5 days, e.g. by card. Ask us!"},
		"a heading goes on":             {filler + "\n\nRefunds\n\nWithin 14 days.\n\n" + filler, "refunds", "Refunds\n\nWithin 14 days."},
		"where most is said":            {"A refund. " + filler + "A refund by card. " + filler, "refund card", "A refund by card. " + strings.TrimSpace(strings.Repeat("Nothing of this is of interest to anybody. ", 8))},
		"part of a sentence":            {long, "refund", "PART"},
		"no part of a word without end": {strings.Repeat("refund", 200), "x", ""},
		"Japanese":                      {strings.Repeat("何もありません。", 60) + "返品は三十日以内です。送料はかかりません。", "返品", "返品は三十日以内です。送料はかかりません。"},
		"Arabic, with points":           {strings.Repeat("لا شيء هنا. ", 60) + "\n\nيُمكِنُكَ إِرجاعُ المُنتَج؟ نعم، خلال ٣٠ يومًا.", "إرجاع", "يُمكِنُكَ إِرجاعُ المُنتَج؟ نعم، خلال ٣٠ يومًا."},
		"combining marks":               {"x y.\nCafe\u0301 au lait, e\u0301te\u0301.", "été", "Cafe\u0301 au lait, e\u0301te\u0301."},
		"right to left and back":        {"\u202bשלום world\u202c עולם.", "world", "\u202bשלום world\u202c עולם."},
	} {
		t.Run(name, func(t *testing.T) {
			got := passage(c.text, worth(c.question))
			if c.want == "PART" {
				if len(got) > maxPassage || !strings.Contains(got, "until the refund is named") || !strings.HasSuffix(got, " goes") && !strings.HasSuffix(got, "goes,") && !strings.HasSuffix(got, " and") && !strings.HasSuffix(got, " on") && !strings.HasSuffix(got, " it") {
					t.Errorf("%s: the passage is %q", name, got)
				}
			} else if got != c.want {
				t.Errorf("%s: the passage is %q, want %q", name, got, c.want)
			}
		})
	}
}

// A quotation is the document's text byte for byte, also in an answer's JSON.
func TestTextOfAnyScriptIsQuotedByteForByte(t *testing.T) {
	k := setUp(t)
	for _, text := range []string{
		"\u202bשָׁלוֹם zirconium\u202c \u2067עולם\u2069.", "zirconium \u2066unclosed", "Z\u0351\u036b\u0343 zirconium e\u0301 Å \u212b", "zirconium 👩\u200d👩\u200d👧\u200d👦 👍🏽 🇩🇪", "zirconium क्षि ක්\u200dෂ น้ำ",
		"zirconium\u00a0<b>&amp;</b>\u2028\u2029 “quoted” \\n \"x\"", "zirconium \ufeff\ufffd \U000E0001",
	} {
		k.put(doc{"a", "Rings \u202e", text})
		if got, want := k.ask("zirconium").text("reply.text"), "“"+text+"”\n— Rings \u202e"; got != want {
			t.Errorf("the answer is %+q, want %+q", got, want)
		}
	}
}

func FuzzAPassageIsAPieceOfItsText(f *testing.F) {
	for _, seed := range [][2]string{
		{"We refund within 14 days.\n\nNot later.", "refund"}, {strings.Repeat("退货政策。", 200), "政策"}, {"e\u0301" + strings.Repeat("\u0301", 900) + " refund", "refund"},
		{strings.Repeat("न्", 400) + " x", "x"}, {strings.Repeat("👨‍👩‍👧", 60), "x"}, {strings.Repeat("refund", 300), strings.Repeat("refund", 300)}, {"\r\n\r\n", ""}, {strings.Repeat("น้ำเปล่า", 90), "เปล่า"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, question string) {
		if !utf8.ValidString(text) || !utf8.ValidString(question) {
			return // no document or message has such text
		}
		got := passage(text, worth(question))
		at := strings.Index(text, got)
		if at < 0 || len(got) > maxPassage || !utf8.ValidString(got) {
			t.Fatalf("the passage of %q is %q, of %d bytes", text, got, len(got))
		}
		for ; ; at++ { // also at any other place of the passage
			next := strings.Index(text[at:], got)
			if next < 0 {
				t.Fatalf("the passage %+q of %+q begins or ends inside a word or character", got, text)
			}
			if at += next; terms.Breaks(text, at) && terms.Breaks(text, at+len(got)) {
				return
			}
		}
	})
}

func BenchmarkPassageOfTheLargestDocument(b *testing.B) {
	text := strings.Repeat("Every bicycle has a warranty of five years on its frame, and a refund. ", maxDocumentText/72)
	asked := worth("warranty refund frame bicycle")
	for b.Loop() {
		passage(text, asked)
	}
}
