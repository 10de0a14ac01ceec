package redisstore

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"
)

func TestAURLLocatesTheStore(t *testing.T) {
	withTLS := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, test := range []struct {
		url  string
		want Options
	}{
		{"redis://127.0.0.1:6380", Options{Addresses: []string{"127.0.0.1:6380"}}},
		{"redis://counts.example.com", Options{Addresses: []string{"counts.example.com:6379"}}},
		{"REDIS://h/", Options{Addresses: []string{"h:6379"}}},
		{"redis://h/3", Options{Addresses: []string{"h:6379"}, DB: 3}},
		{"redis://h?prefix=edge.eu-1", Options{Addresses: []string{"h:6379"}, Prefix: "edge.eu-1"}},
		{"redis://h/3?prefix=a:b_c", Options{Addresses: []string{"h:6379"}, DB: 3, Prefix: "a:b_c"}},
		{"redis://h?replicas=2", Options{Addresses: []string{"h:6379"}, Replicas: 2}},
		{"redis://[2001:db8::1]:6380,[::1]", Options{Addresses: []string{"[2001:db8::1]:6380", "[::1]:6379"}}},
		{"redis://[fe80::1%25eth0]", Options{Addresses: []string{"[fe80::1%eth0]:6379"}}},
		{"redis://a:7000,b:7001,c/0", Options{Addresses: []string{"a:7000", "b:7001", "c:6379"}}},
		{"redis://:secret@h", Options{Addresses: []string{"h:6379"}, Password: "secret"}},
		{"redis://ann:secret@h", Options{Addresses: []string{"h:6379"}, Username: "ann", Password: "secret"}},
		{"redis://an%3An:%40%2f%3F%23%25+:x@h", Options{Addresses: []string{"h:6379"}, Username: "an:n", Password: "@/?#%+:x"}},
		{"redis://:p@ss@h", Options{Addresses: []string{"h:6379"}, Password: "p@ss"}},
		{"rediss://h", Options{Addresses: []string{"h:6379"}, TLS: withTLS}},
		{"rediss://h?ca=/etc/my%20ca.pem&cert=c.pem&key=k.pem", Options{Addresses: []string{"h:6379"}, TLS: withTLS, CAFile: "/etc/my ca.pem", CertFile: "c.pem", KeyFile: "k.pem"}},
		{"redis-sentinel://a,b:26380/mymaster", Options{Addresses: []string{"a:26379", "b:26380"}, Master: "mymaster"}},
		{"redis-sentinel://ann:secret@a,b/mymaster/2?sentinel_user=sen&sentinel_password=ti%26nel&prefix=p",
			Options{Addresses: []string{"a:26379", "b:26379"}, Master: "mymaster", DB: 2, Username: "ann", Password: "secret",
				SentinelUsername: "sen", SentinelPassword: "ti&nel", Prefix: "p"}},
		{"rediss-sentinel://a/m?ca=ca.pem", Options{Addresses: []string{"a:26379"}, Master: "m", TLS: withTLS, CAFile: "ca.pem"}},
	} {
		if got, err := Parse(test.url); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s\n is %+v, %v\nwant %+v", test.url, got, err, test.want)
		}
	}
}

func TestAnInvalidURLIsRejectedWithTheAllowedValues(t *testing.T) {
	for _, test := range []struct{ url, want string }{
		{"", "expected redis://HOST:PORT"},
		{"redis://h?replicas=0", "parameter replicas: expected a number from 1 to 15"},
		{"redis://h?replicas=16", "parameter replicas: expected a number from 1 to 15"},
		{"redis://h?replicas=one", "parameter replicas: expected a number from 1 to 15"},
		{"redis://h?replicas=1&replicas=1", "parameter replicas is given twice"},
		{"127.0.0.1:6379", "expected redis://HOST:PORT"},
		{"http://h", "expected redis://HOST:PORT"},
		{"redis:h", "expected redis://HOST:PORT"},
		{"redis://", "first host: it is empty"},
		{"redis://:6379", "first host: it is empty"},
		{"redis://a,,b", "second host: it is empty"},
		{"redis://a,b,c,", "4th host: it is empty"},
		{"redis://:hunter2", "first host: it is empty"},
		{"redis://ann:hunter2", "expected a port from 1 to 65535"},
		{"redis://a:0", "expected a port from 1 to 65535"},
		{"redis://a:65536", "expected a port from 1 to 65535"},
		{"redis://a:", "expected a port from 1 to 65535"},
		{"redis://a:+1", "expected a port from 1 to 65535"},
		{"redis://a b", "letters, digits"},
		{"redis://a\x00", "letters, digits"},
		{"redis://2001:db8::1", "in brackets"},
		{"redis://[2001:db8::1", "in brackets"},
		{"redis://[127.0.0.1]:6379", "in brackets"},
		{"redis://[::1]6379", "in brackets"},
		{"redis://[::1%25a;b]", "expected a zone of"},
		{"redis://hunter2@h", "no password"},
		{"redis://ann:@h", "no password"},
		{"redis://@h", "no password"},
		{"redis://:hunter2%zz@h", "does not begin an escape"},
		{"redis://:hunter2/more@h", "%2F"},
		{"redis://:hunter2?more@h", "%3F"},
		{"redis://:hunter2#more@h", "%23"},
		{"redis://h#fragment", "%23"},
		{"redis://h/x", "expected a number from 0 to 65535"},
		{"redis://h/-1", "expected a number from 0 to 65535"},
		{"redis://h/65536", "expected a number from 0 to 65535"},
		{"redis://h/1/2", "expected a number from 0 to 65535"},
		{"redis://ann:6379/hunter2", "expected a number from 0 to 65535"},
		{"redis://a,b/1", "a cluster has only database 0"},
		{"redis://h?", ""},
		{"redis://h?prefix=", "parameter prefix is empty"},
		{"redis://h?prefix", "parameter prefix is empty"},
		{"redis://h?prefix={a}", "- _ : . and letters and digits"},
		{"redis://h?prefix=" + strings.Repeat("x", 65), "1 to 64 of"},
		{"redis://h?prefix=a&prefix=b", "prefix is given twice"},
		{"redis://h?prefix=%", "does not begin an escape"},
		{"redis://h?pass=hunter2", "unknown parameter"},
		{"redis://h?ca=ca.pem", "expected rediss://"},
		{"redis://h?sentinel_password=hunter2", "only for redis-sentinel://"},
		{"rediss://h?cert=c.pem", "cert and key go together"},
		{"redis-sentinel://h", "the server's name is missing"},
		{"redis-sentinel://h/", "the server's name is missing"},
		{"redis-sentinel://h//1", "the server's name is missing"},
		{"redis-sentinel://h/my%20master", "letters, digits"},
		{"redis-sentinel://h/m/x", "expected a number from 0 to 65535"},
		{"redis-sentinel://h/m?sentinel_user=u", "without sentinel_password"},
		{"redis-sentinel://:hunter2@h/m?sentinel_password=hunter2&prefix=/", "- _ : . and letters and digits"},
	} {
		_, err := Parse(test.url)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", test.url, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", test.url, err, test.want)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error contains the password: %v", test.url, err)
		}
	}
}

// FuzzParse checks that Parse returns Options whose String is an equivalent URL
// without users and passwords, and that no error contains the password.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"redis://127.0.0.1:6379/3?prefix=p", "rediss://ann:hunter2@h,[::1]:1?ca=a%26b&cert=c&key=k",
		"redis-sentinel://a,b:1/m/2?sentinel_user=u&sentinel_password=p", "redis://[fe80::1%25eth0]", "redis://:a/b@c", "rediss-sentinel://h/m", "redis://h?ca=%00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := Parse(text)
		if err != nil {
			return
		}
		if len(o.Addresses) == 0 {
			t.Fatalf("%q names no host: %#v", text, o)
		}
		printed := o.String()
		again, err := Parse(printed)
		o.Username, o.Password, o.SentinelUsername, o.SentinelPassword = "", "", "", ""
		if err != nil || !reflect.DeepEqual(again, o) {
			t.Errorf("%q prints %q, which is %#v, %v; want %#v", text, printed, again, err, o)
		}
	})
}

// No error about a URL contains its password, escaped or not.
func FuzzNoErrorContainsThePassword(f *testing.F) {
	for _, seed := range []string{"a", "p@ss", "sl/ash", "que?ry", "ha#sh", "per%cent", "co:lon", "[", "1,2", "&prefix=", "\x00"} {
		f.Add(seed, uint8(0))
		f.Add(seed, uint8(7))
	}
	places := []string{"redis://:$@h", "redis://u:$@h:x", "rediss://:$@h/x", "redis-sentinel://:$@h", "redis-sentinel://h/m?prefix=?&sentinel_password=$",
		"redis://$", "redis://u:$", "redis://u:$@h?x", "redis://h?sentinel_password=$", "redis:/:$@h", "rdis://:$@h"}
	f.Fuzz(func(t *testing.T, password string, place uint8) {
		const mark = "hunter2\u00b6"
		_, err := Parse(strings.ReplaceAll(places[int(place)%len(places)], "$", password+mark+password))
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", password, err)
		}
	})
}
