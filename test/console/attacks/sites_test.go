// SPDX-License-Identifier: Apache-2.0

package attacks_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/nebulaio/nebulaio/test/console/started"
)

// forged is a request that a hostile page makes the victim's browser send.
type forged struct {
	method, path string
	body         string
	header       map[string]string
	host         string
	browser      func(*world) *started.Browser
}

func (f forged) send(w *world) *started.Reply {
	b := w.victim
	if f.browser != nil {
		b = f.browser(w)
	}
	q := started.Request{Method: f.method, Path: f.path, Header: f.header, Host: f.host}
	if f.body != "" {
		q.Body, q.Size = strings.NewReader(f.body), int64(len(f.body))
	}
	return b.Send(q)
}

// crossSite are the attempts to use the victim's session from another site.
func crossSite() []attempt {
	const bucket = `{"name":"forged"}`
	const kind = "application/json"
	refused := func(f forged, status int, code string) func(*world) string {
		return func(w *world) string {
			r := f.send(w)
			if strings.Contains(string(w.victim.JSON("GET", "buckets", nil).Body), "forged") {
				return "the bucket was made"
			}
			return expect(r, status, code)
		}
	}
	post := func(header map[string]string) forged {
		h := map[string]string{"Content-Type": kind}
		for k, v := range header {
			h[k] = v
		}
		return forged{method: "POST", path: "buckets", body: bucket, header: h}
	}
	return []attempt{
		{"a request without the token", refused(post(map[string]string{"X-CSRF-Token": ""}), 403, "CSRF")},
		{"a request with a wrong token", refused(post(map[string]string{"X-CSRF-Token": "guess"}), 403, "CSRF")},
		{"a request with the token of another session", func(w *world) string {
			return refused(post(map[string]string{"X-CSRF-Token": w.attacker.CSRF}), 403, "CSRF")(w)
		}},
		{"the token in the query", func(w *world) string {
			f := post(map[string]string{"X-CSRF-Token": ""})
			f.path = "buckets?X-CSRF-Token=" + w.victim.CSRF + "&csrf=" + w.victim.CSRF
			return refused(f, 403, "CSRF")(w)
		}},
		{"a request of another origin", refused(post(map[string]string{"Origin": "https://evil.example"}), 403, "CrossSite")},
		{"a request of no origin", refused(post(map[string]string{"Origin": "null"}), 403, "CrossSite")},
		{"an origin that begins like ours", func(w *world) string {
			return refused(post(map[string]string{"Origin": w.s.Console + ".evil.example"}), 403, "CrossSite")(w)
		}},
		{"an origin on another port", refused(post(map[string]string{"Origin": "http://127.0.0.1:1"}), 403, "CrossSite")},
		{"a request that the browser calls cross-site", refused(post(map[string]string{"Sec-Fetch-Site": "cross-site"}), 403,
			"CrossSite")},
		{"a request of a neighbour in the same site", refused(post(map[string]string{"Sec-Fetch-Site": "same-site"}), 403,
			"CrossSite")},
		{"a GET from another site", refused(forged{method: "GET", path: "buckets",
			header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}}, 403, "CrossSite")},
		{"a download from another site", refused(forged{method: "GET", path: "buckets/private/content?key=secret.txt",
			header: map[string]string{"Sec-Fetch-Site": "cross-site"}}, 403, "CrossSite")},
		{"a stream for another site", refused(forged{method: "GET", path: "live",
			header: map[string]string{"Origin": "https://evil.example"}}, 403, "CrossSite")},
		{"a form of the type text/plain", refused(post(map[string]string{"Content-Type": "text/plain"}), 415,
			"InvalidRequest")},
		{"a form of URL parameters", refused(post(map[string]string{"Content-Type": "application/x-www-form-urlencoded"}),
			415, "InvalidRequest")},
		{"a log in from another site", refused(forged{method: "POST", path: "session", body: `{"access_key":"attacker",` +
			`"secret_key":"attacker-secret"}`, header: map[string]string{"Content-Type": kind,
			"Origin": "https://evil.example"}}, 403, "CrossSite")},
		{"a log in by a form", refused(forged{method: "POST", path: "session", body: `{"access_key":"attacker",` +
			`"secret_key":"attacker-secret"}`, header: map[string]string{"Content-Type": "text/plain"}}, 415, "")},
		{"a log out from another site", func(w *world) string {
			r := forged{method: "DELETE", path: "session", header: map[string]string{"X-CSRF-Token": ""}}.send(w)
			return either(expect(r, 403, "CSRF"), expect(w.victim.JSON("GET", "session", nil), 200, ""))
		}},
		{"an upload without the token", func(w *world) string {
			r := forged{method: "PUT", path: "buckets/private/content?key=secret.txt", body: "changed",
				header: map[string]string{"X-CSRF-Token": ""}}.send(w)
			got := w.victim.JSON("GET", "buckets/private/content?key=secret.txt", nil)
			if string(got.Body) != "the secret" {
				return "the object was changed"
			}
			return expect(r, 403, "CSRF")
		}},
		{"another method in a header", refused(forged{method: "GET", path: "buckets/other",
			header: map[string]string{"X-HTTP-Method-Override": "DELETE", "X-Method-Override": "DELETE"}}, 200, "")},
		{"another method in the query", func(w *world) string {
			forged{method: "GET", path: "buckets/other?_method=DELETE"}.send(w)
			return expect(w.victim.JSON("GET", "buckets/other", nil), 200, "")
		}},
		{"a question for permission to read replies", func(w *world) string {
			r := forged{method: "OPTIONS", path: "buckets", header: map[string]string{"Origin": "https://evil.example",
				"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-csrf-token"}}.send(w)
			for name := range r.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					return fmt.Sprintf("%s: %s", name, r.Header.Get(name))
				}
			}
			return expect(r, 403, "CrossSite")
		}},
		{"a name that points to this address (DNS rebinding)", refused(forged{method: "POST", path: "session",
			host: "evil.example:9001", body: `{"access_key":"` + started.RootUser + `","secret_key":"` + started.RootPassword +
				`"}`, header: map[string]string{"Content-Type": kind}}, 403, "UnknownHost")},
	}
}

// framing are the attempts to show the console in a frame of another page.
func framing() []attempt {
	framed := func(path string) func(*world) string {
		return func(w *world) string {
			h := w.victim.Send(started.Request{Method: "GET", Path: path}).Header
			switch {
			case h.Get("X-Frame-Options") != "DENY":
				return "old browsers show it in a frame"
			case !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'"):
				return "browsers show it in a frame"
			case h.Get("Cross-Origin-Opener-Policy") != "same-origin":
				return "the page that opened it can reach it"
			case h.Get("Cross-Origin-Resource-Policy") != "same-origin":
				return "another site can load it"
			case h.Get("Referrer-Policy") != "no-referrer":
				return "links tell where they come from"
			}
			return ""
		}
	}
	return []attempt{
		{"the page in a frame", framed("/console/")},
		{"the API in a frame", framed("session")},
		{"a download in a frame", framed("buckets/private/content?key=secret.txt")},
		{"a missing page in a frame", framed("/console/missing.html")},
		{"a redirect to another host", func(w *world) string {
			for _, path := range []string{"//evil.example/console/", "/console//evil.example/", `/console/\evil.example`,
				"/console/api//evil.example/.."} {
				r := w.victim.Send(started.Request{Method: http.MethodGet, Path: path, Header: map[string]string{
					"Accept": "text/html"}})
				if to := r.Header.Get("Location"); strings.HasPrefix(to, "//") || strings.HasPrefix(to, `/\`) ||
					strings.HasPrefix(to, "http") {
					return path + " leads to " + to
				}
			}
			return ""
		}},
	}
}
