package verify

import (
	"encoding/base64"
	"net/url"

	"github.com/weirlimit/weir/identity"
)

// placeOf returns where requests have a credential of a kind. Sessions are always in
// Authorization: Bearer.
func (o *Options) placeOf(kind string) identity.Place {
	if kind == sourceToken && len(o.TokenPlaces) > 0 {
		return o.TokenPlaces[0]
	}
	return identity.Place{}
}

// presented returns a request with a credential in a place.
func presented(r request, in identity.Place, credential string) request {
	switch {
	case in.Field() != "":
		return r.with(in.Field(), credential)
	case in.Parameter() != "":
		r.query = joined(r.query, "&", in.Parameter()+"="+url.QueryEscape(credential))
		return r
	case in.Scheme() == "Basic":
		return r.with("Authorization", basic(credential, ""))
	}
	return r.with("Authorization", "Bearer "+credential)
}

// absentFrom returns a request that has nothing in a place, not even what Options.Header has there.
// A parameter is only in requests that were given one.
func absentFrom(r request, in identity.Place) request {
	switch {
	case in.Field() != "":
		return r.with(in.Field(), "")
	case in.Parameter() != "":
		return r
	}
	return r.with("Authorization", "")
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// spelled returns the texts by which a credential occurs in requests, beside itself.
func spelledIn(places []identity.Place, credential string) (all []string) {
	for _, p := range places {
		switch {
		case p.Parameter() != "":
			all = append(all, url.QueryEscape(credential))
		case p.Scheme() == "Basic":
			all = append(all, base64.StdEncoding.EncodeToString([]byte(credential+":")))
		}
	}
	return all
}
