package rls

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// Handler answers POST /json, the service for clients without gRPC, and GET /healthcheck.
func (d *Door) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /json", d.json)
	mux.HandleFunc("GET /healthcheck", d.healthcheck)
	return mux
}

// json answers a RateLimitRequest in JSON with a RateLimitResponse. The status is 429 if the limit
// is exceeded.
func (d *Door) json(w http.ResponseWriter, r *http.Request) {
	ctx := context.WithValue(r.Context(), requestKey{}, r)
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(from)})
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		code := http.StatusBadRequest
		if large := new(http.MaxBytesError); errors.As(err, &large) {
			code = http.StatusRequestEntityTooLarge
		}
		http.Error(w, http.StatusText(code), code)
		return
	}
	var asked pb.RateLimitRequest
	if err := protojson.Unmarshal(body, &asked); err != nil {
		const what = "the body is no envoy.service.ratelimit.v3.RateLimitRequest in JSON: "
		p := problemOf(asked.ProtoReflect(), body, err)
		d.service.noteFailed(ctx, "", status.Error(codes.InvalidArgument, what+p.log))
		http.Error(w, what+p.answer, http.StatusBadRequest)
		return
	}
	out, err := counted{d}.ShouldRateLimit(ctx, &asked)
	if err != nil {
		code := http.StatusBadRequest
		if status.Code(err) == codes.Unavailable || status.Code(err) == codes.Internal {
			code = http.StatusInternalServerError
		}
		http.Error(w, status.Convert(err).Message(), code)
		return
	}
	text, err := protojson.Marshal(out)
	if err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if out.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text) // the client has gone
}

// requestKey is the key of the request over HTTP in the context of a call of /json.
type requestKey struct{}

// RequestOf returns the request over HTTP that ctx is of, as Observation.Context has it; nil for a
// call over gRPC.
func RequestOf(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return r
}

func (d *Door) healthcheck(w http.ResponseWriter, _ *http.Request) {
	if d.Draining() {
		http.Error(w, "draining", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "OK")
}

// ServeHTTP serves Handler at l until ctx ends and the drain of Serve is over, so that health
// checks get a 500 while calls over gRPC end. Then it answers what is under way. Both end within
// DoorOptions.Drain. It closes l. The error is nil after that, and otherwise why it could not
// serve. After HandedOver it accepts no more when ctx ends.
func (d *Door) ServeHTTP(ctx context.Context, l net.Listener) error {
	const header, whole, idle = 10 * time.Second, 20 * time.Second, 2 * time.Minute
	s := &http.Server{
		Handler: d.Handler(), ReadHeaderTimeout: header, ReadTimeout: whole, WriteTimeout: 2 * whole, IdleTimeout: idle, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(d.service.options.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		<-d.drained
	}
	patience, cancel := context.WithTimeout(context.Background(), d.options.Drain)
	defer cancel()
	if !d.elsewhere.Load() {
		select {
		case <-d.ended:
		case <-patience.Done():
		}
	}
	_ = s.Shutdown(patience) // what does not finish is closed
	_ = s.Close()
	<-ended
	return nil
}
