package main

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/cli"
)

func TestTracesAreSetByFlagsOrOpenTelemetryVariables(t *testing.T) {
	for _, c := range []struct {
		args, env []string
		want      string // endpoint, ratio and service; empty if there are no traces
		refused   string // in the error
	}{
		{nil, nil, "", ""},
		{[]string{"--traces", "http://127.0.0.1:4318"}, nil, "http://127.0.0.1:4318/v1/traces 1 weir", ""},
		{[]string{"--traces", "http://c.example.com/otlp/v1/traces", "--trace-ratio", "0.25"}, nil, "http://c.example.com/otlp/v1/traces 0.25 weir", ""},
		{nil, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c.example.com:4318/"}, "http://c.example.com:4318/v1/traces 1 weir", ""},
		{nil, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a.example.com", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://b.example.com/in"}, "https://b.example.com/in 1 weir", ""},
		{nil, []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_SERVICE_NAME=edge-7"}, "http://localhost:4318/v1/traces 1 edge-7", ""},
		{nil, []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.1"}, "http://localhost:4318/v1/traces 0.1 weir", ""},
		{nil, []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=always_off"}, "http://localhost:4318/v1/traces 0 weir", ""},
		{[]string{"--trace-ratio=0.5"}, []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=always_off"}, "http://localhost:4318/v1/traces 0.5 weir", ""},
		{nil, []string{"OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c.example.com"}, "", ""},
		{nil, []string{"OTEL_SDK_DISABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c.example.com"}, "", ""},
		{nil, []string{"OTEL_SERVICE_NAME=edge-7"}, "", ""},
		{[]string{"--traces", "http://127.0.0.1:4318"}, []string{"OTEL_TRACES_EXPORTER=none"}, "http://127.0.0.1:4318/v1/traces 1 weir", ""},

		{nil, []string{"OTEL_TRACES_EXPORTER=zipkin"}, "", "expected otlp or none"},
		{nil, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c.example.com:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, "", "expected http/protobuf"},
		{nil, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=https://u:secret@c.example.com"}, "", "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{nil, []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=jaeger_remote"}, "", "OTEL_TRACES_SAMPLER"},
		{nil, []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=2"}, "", "OTEL_TRACES_SAMPLER_ARG"},
		{nil, []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_HEADERS=secret"}, "", "expected name=value"},
		{[]string{"--trace-ratio", "0.5"}, nil, "", "has no effect without --traces"},
	} {
		f := defaultServeFlags()
		cmd := newServe(nil)
		cmd.ResetFlags()
		f.register(cmd)
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		err := f.findTracing(cmd, cli.ParseEnvironment(c.env))
		message := ""
		if err != nil {
			message = err.Error()
		}
		if (err != nil) != (c.refused != "") || !strings.Contains(message, c.refused) || strings.Contains(message, "secret") {
			t.Errorf("%v %v: %v, want %q", c.args, c.env, err, c.refused)
		}
		got := ""
		if o := f.tracing; o != nil {
			ratio := fraction(o.Ratio)
			got = o.Endpoint.String() + " " + ratio.String() + " " + o.Service
		}
		if got != c.want {
			t.Errorf("%v %v: traces go to %q, want %q", c.args, c.env, got, c.want)
		}
	}
}

func TestCollectorHeadersComeFromAVariable(t *testing.T) {
	header, err := otelVariables{"OTEL_EXPORTER_OTLP_HEADERS": "X-Api-Key=a%20b=, other = c ,"}.tracesHeader()
	if err != nil || len(header) != 2 || header.Get("X-Api-Key") != "a b=" || header.Get("Other") != "c" {
		t.Errorf("%v, %v", header, err)
	}
	for _, bad := range []string{"a", "=b", "a=%zz", "a=%0d%0ab", "a b=c", "a:b=c"} {
		if header, err := (otelVariables{"OTEL_EXPORTER_OTLP_HEADERS": bad}).tracesHeader(); err == nil {
			t.Errorf("%q is %v", bad, header)
		}
	}
}
