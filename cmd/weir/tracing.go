package main

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/telemetry"
)

// A fraction is a number from 0 to 1.
type fraction float64

func (f *fraction) Set(value string) error {
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return errors.New("expected a number from 0 to 1, such as 0.01")
	}
	*f = fraction(v)
	return nil
}

func (f *fraction) String() string { return strconv.FormatFloat(float64(*f), 'g', -1, 64) }
func (f *fraction) Type() string   { return "PART" }

// tracesPath is where a collector takes spans by OTLP over HTTP.
const tracesPath = "/v1/traces"

// findTracing sets f.tracing from the flags, or else from the variables that OpenTelemetry has
// agreed on: OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT, …_HEADERS and …_PROTOCOL,
// OTEL_TRACES_SAMPLER and its _ARG, OTEL_SERVICE_NAME, OTEL_SDK_DISABLED. It is nil if they ask for
// no traces.
func (f *serveFlags) findTracing(cmd *cobra.Command, env cli.Environment) error {
	if f.traces.URL == nil && cmd.Flags().Changed("trace-ratio") && !otelVariables(env).wantsTraces() {
		return cli.UsageError("give --traces URL too, or leave it out", "%s has no effect without --traces", cli.GivenAs(cmd, "trace-ratio"))
	}
	ratio := float64(f.traceRatio)
	var endpoint *url.URL
	if f.traces.URL != nil {
		at := *f.traces.URL
		if strings.Trim(at.Path, "/") == "" {
			at.Path = tracesPath
		}
		endpoint = &at
	} else if otelVariables(env).wantsTraces() {
		var err error
		if endpoint, err = otelVariables(env).tracesEndpoint(); err != nil {
			return err
		}
		if !cmd.Flags().Changed("trace-ratio") {
			if ratio, err = otelVariables(env).tracesRatio(); err != nil {
				return err
			}
		}
	}
	if endpoint == nil {
		return nil
	}
	header, err := otelVariables(env).tracesHeader()
	if err != nil {
		return err
	}
	f.tracing = &telemetry.TraceOptions{Endpoint: endpoint, Header: header, Ratio: ratio, Service: cmp.Or(env["OTEL_SERVICE_NAME"], "weir")}
	return nil
}

const otelHint = "the variables are OpenTelemetry's; --traces URL overrides them, and OTEL_TRACES_EXPORTER=none switches traces off"

// otelVariables are the variables that OpenTelemetry defines for every program.
type otelVariables cli.Environment

// wantsTraces reports whether the variables ask for traces.
func (e otelVariables) wantsTraces() bool {
	if strings.EqualFold(e["OTEL_SDK_DISABLED"], "true") || e["OTEL_TRACES_EXPORTER"] == "none" {
		return false
	}
	return e["OTEL_TRACES_EXPORTER"] != "" || e["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] != "" || e["OTEL_EXPORTER_OTLP_ENDPOINT"] != ""
}

// otlp returns the variable for traces only if it is set, and otherwise the one for all signals.
func (e otelVariables) otlp(what string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_TRACES_" + what
	if e[name] == "" {
		name = "OTEL_EXPORTER_OTLP_" + what
	}
	return name, e[name]
}

func (e otelVariables) tracesEndpoint() (*url.URL, error) {
	if exporter := e["OTEL_TRACES_EXPORTER"]; exporter != "" && exporter != "otlp" {
		return nil, cli.UsageError(otelHint, "variable OTEL_TRACES_EXPORTER=%q: expected otlp or none", exporter)
	}
	if name, protocol := e.otlp("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return nil, cli.UsageError(otelHint, "variable %s=%q: expected http/protobuf", name, protocol)
	}
	name, value := e.otlp("ENDPOINT")
	if value == "" {
		value = "http://localhost:4318"
	}
	var at cli.Endpoint
	if err := at.Set(value); err != nil {
		return nil, cli.UsageError(otelHint, "variable %s=%q: %w", name, cli.RedactURL(value), err)
	}
	if name != "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" { // that one has the whole path
		at.Path = strings.TrimSuffix(at.Path, "/") + tracesPath
	}
	return at.URL, nil
}

// tracesRatio returns the ratio of a sampler. With every sampler, the decision of a trusted caller
// comes first.
func (e otelVariables) tracesRatio() (float64, error) {
	switch sampler := e["OTEL_TRACES_SAMPLER"]; sampler {
	case "", "parentbased_always_on", "always_on":
		return 1, nil
	case "parentbased_always_off", "always_off":
		return 0, nil
	case "parentbased_traceidratio", "traceidratio":
		ratio := fraction(1)
		if value := e["OTEL_TRACES_SAMPLER_ARG"]; value != "" {
			if err := ratio.Set(value); err != nil {
				return 0, cli.UsageError(otelHint, "variable OTEL_TRACES_SAMPLER_ARG=%q: %w", value, err)
			}
		}
		return float64(ratio), nil
	default:
		return 0, cli.UsageError(otelHint, "variable OTEL_TRACES_SAMPLER=%q: expected parentbased_always_on, parentbased_always_off or parentbased_traceidratio", sampler)
	}
}

// tracesHeader reads name=value pairs between commas, as in W3C's baggage. Errors do not contain
// the values, which are keys.
func (e otelVariables) tracesHeader() (http.Header, error) {
	name, value := e.otlp("HEADERS")
	header := http.Header{}
	for pair := range strings.SplitSeq(value, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		field, text, ok := strings.Cut(pair, "=")
		text, err := url.PathUnescape(strings.TrimSpace(text))
		field = strings.TrimSpace(field)
		if !ok || err != nil || field == "" || strings.ContainsAny(field, " \t:\r\n") || strings.ContainsAny(text, "\r\n\x00") {
			return nil, cli.UsageError(otelHint, "variable %s: expected name=value pairs between commas, values escaped as in URLs", name)
		}
		header.Set(field, text)
	}
	return header, nil
}
