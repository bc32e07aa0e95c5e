// SPDX-License-Identifier: Apache-2.0

package attacks_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/test/console/started"
)

// cookie is the name of the session's cookie over plain HTTP.
const cookie = "nebulaio"

func tokenOf(b *started.Browser) string {
	for _, c := range b.Cookies() {
		if strings.HasSuffix(c.Name, cookie) {
			return c.Value
		}
	}
	return ""
}

// sessions are the attempts to get into the session of another user, or to stay in one's own.
func sessions() []attempt {
	return []attempt{
		{"a session that the attacker chose", func(w *world) string {
			b := w.s.Browser()
			b.SetCookie(&http.Cookie{Name: cookie, Value: "chosen-by-the-attacker", Path: "/"})
			b.Must("POST", "session", map[string]string{"access_key": "victim", "secret_key": "victim-secret"})
			thief := w.s.Browser()
			thief.SetCookie(&http.Cookie{Name: cookie, Value: "chosen-by-the-attacker", Path: "/"})
			if tokenOf(b) == "chosen-by-the-attacker" {
				return "the token was kept"
			}
			return expect(thief.JSON("GET", "session", nil), 401, "NotLoggedIn")
		}},
		{"the attacker's own session for the victim", func(w *world) string {
			b, thief := w.s.Browser(), w.s.LogIn("attacker", "attacker-secret")
			b.SetCookie(&http.Cookie{Name: cookie, Value: tokenOf(thief), Path: "/"})
			b.Must("POST", "session", map[string]string{"access_key": "victim", "secret_key": "victim-secret"})
			return expect(thief.JSON("GET", "session", nil), 401, "NotLoggedIn")
		}},
		{"two cookies of one name", func(w *world) string {
			both := func(first, second string) string {
				return expect(w.s.Browser().Send(started.Request{Method: "GET", Path: "session", Header: map[string]string{
					"Cookie": cookie + "=" + first + "; " + cookie + "=" + second}}), 401, "NotLoggedIn")
			}
			return either(both("x", tokenOf(w.attacker)), both(tokenOf(w.attacker), "x"),
				both(tokenOf(w.attacker), tokenOf(w.victim)))
		}},
		{"the token in the URL", func(w *world) string {
			return expect(w.s.Browser().JSON("GET", "session?"+cookie+"="+tokenOf(w.victim)+"&token="+tokenOf(w.victim), nil),
				401, "NotLoggedIn")
		}},
		{"the token in a header", func(w *world) string {
			return expect(w.s.Browser().Send(started.Request{Method: "GET", Path: "session", Header: map[string]string{
				"Authorization": "Bearer " + tokenOf(w.victim)}}), 401, "NotLoggedIn")
		}},
		{"the token of CSRF as a session", func(w *world) string {
			b := w.s.Browser()
			b.SetCookie(&http.Cookie{Name: cookie, Value: w.victim.CSRF, Path: "/"})
			return expect(b.JSON("GET", "session", nil), 401, "NotLoggedIn")
		}},
		{"the cookie in a script or another site", func(w *world) string {
			b := w.s.Browser()
			r := b.Must("POST", "session", map[string]string{"access_key": "victim", "secret_key": "victim-secret"})
			set := r.Header.Get("Set-Cookie")
			for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
				if !strings.Contains(set, want) {
					return "the cookie lacks " + want
				}
			}
			if strings.Contains(set, "Domain") || strings.Contains(string(r.Body), tokenOf(b)) {
				return "the token is known to others"
			}
			return ""
		}},
		{"a session after the log out", func(w *world) string {
			b := w.s.LogIn("victim", "victim-secret")
			token := tokenOf(b)
			b.Must("DELETE", "session", nil)
			b.SetCookie(&http.Cookie{Name: cookie, Value: token, Path: "/"})
			return expect(b.JSON("GET", "session", nil), 401, "NotLoggedIn")
		}},
		{"a session after a new secret", func(w *world) string {
			w.s.AddUser("leaver", iam.RoleUser)
			b := w.s.LogIn("leaver", "leaver-secret")
			w.root.Must("PATCH", "users/leaver", map[string]string{"secret_key": "another-secret"})
			return expect(b.JSON("GET", "buckets", nil), 401, "NotLoggedIn")
		}},
		{"a session after the account was removed", func(w *world) string {
			b := w.s.LogIn("leaver", "another-secret")
			w.root.Must("DELETE", "users/leaver", nil)
			return expect(b.JSON("GET", "buckets", nil), 401, "NotLoggedIn")
		}},
		{"pages of an administrator after the role was taken away", func(w *world) string {
			w.s.AddUser("deputy", iam.RoleAdmin)
			b := w.s.LogIn("deputy", "deputy-secret")
			b.Must("GET", "users", nil)
			w.root.Must("PATCH", "users/deputy", map[string]string{"role": "user"})
			return expect(b.JSON("GET", "users", nil), 403, "AdminOnly")
		}},
		{"secrets in replies", func(w *world) string {
			for _, route := range []string{"session", "users", "config", "overview", "users/victim", "transfers"} {
				body := string(w.root.Must("GET", route, nil).Body)
				if strings.Contains(body, "-secret") || strings.Contains(body, tokenOf(w.root)) {
					return route + " shows a secret"
				}
			}
			return ""
		}},
		{"which access keys exist", func(w *world) string {
			wrong := w.s.Browser().JSON("POST", "session",
				map[string]string{"access_key": "victim", "secret_key": "wrong-secret"})
			nobody := w.s.Browser().JSON("POST", "session",
				map[string]string{"access_key": "nobody", "secret_key": "wrong-secret"})
			if string(wrong.Body) != string(nobody.Body) {
				return "the replies differ"
			}
			return either(expect(wrong, 401, "BadKeys"), expect(nobody, 401, "BadKeys"))
		}},
		{"an empty secret", func(w *world) string {
			return expect(w.s.Browser().JSON("POST", "session", map[string]string{"access_key": "nobody"}), 401, "BadKeys")
		}},
	}
}

// TestManyWrongKeysAreRefused has a server of its own, because it locks out the address of the tests.
func TestManyWrongKeysAreRefused(t *testing.T) {
	s := started.Run(t, nil)
	b := s.Browser()
	try := func(i int, secret string) *started.Reply {
		return b.Send(started.Request{Method: "POST", Path: "session", Header: map[string]string{
			"Content-Type": "application/json", "X-Forwarded-For": "203.0.113." + string(rune('0'+i%10)),
			"X-Real-IP": "203.0.113." + string(rune('0'+i%10)), "Forwarded": "for=203.0.113.9"},
			Body: strings.NewReader(`{"access_key":"operator","secret_key":"` + secret + `"}`),
			Size: int64(len(`{"access_key":"operator","secret_key":"` + secret + `"}`))})
	}
	compared := 0
	for i := range 30 {
		if r := try(i, "wrong-secret"); r.Status == http.StatusUnauthorized {
			compared++
		} else if r.Status != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
	}
	if compared != 10 {
		t.Errorf("%d wrong keys were compared, expected 10", compared)
	}
	if r := try(0, started.RootPassword); r.Status != http.StatusTooManyRequests {
		t.Errorf("the right keys after too many wrong ones: %d", r.Status)
	}
}

// TestCookiesOverTLS attacks a server with TLS.
func TestCookiesOverTLS(t *testing.T) {
	s := started.Run(t, map[string]string{"tls.generate": "true"})
	b := s.Root()
	r := b.JSON("POST", "session", map[string]string{"access_key": started.RootUser, "secret_key": started.RootPassword})
	set := r.Header.Get("Set-Cookie")
	for _, want := range []string{"__Host-nebulaio=", "Secure", "HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(set, want) {
			t.Errorf("the cookie lacks %s", want)
		}
	}
	thief := s.Browser()
	thief.SetCookie(&http.Cookie{Name: cookie, Value: tokenOf(b), Path: "/"})
	if r := thief.JSON("GET", "session", nil); r.Status != http.StatusUnauthorized {
		t.Errorf("a cookie without its prefix: %d", r.Status)
	}
	b.CSRF = csrf(t, b)
	b.Must("POST", "buckets", map[string]any{"name": "secure"})
	b.Must("PUT", "buckets/secure/policy", map[string]string{
		"policy": `{"Version":"2012-10-17","Statement":[{"Effect":"Deny",` +
			`"Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::secure","arn:aws:s3:::secure/*"],"Condition":{"Bool":` +
			`{"aws:SecureTransport":"false"}}}]}`})
	b.Must("GET", "buckets/secure/objects", nil) // the browser's TLS counts
}

func csrf(t *testing.T, b *started.Browser) string {
	t.Helper()
	var in struct{ CSRF string }
	b.Must("GET", "session", nil).Into(&in)
	return in.CSRF
}

// TestAnOpenNetworkNeedsTLS attacks a server that other machines can reach.
func TestAnOpenNetworkNeedsTLS(t *testing.T) {
	s := started.Run(t, map[string]string{"console_address": "0.0.0.0:0"})
	s.Console = "http://127.0.0.1:" + s.Console[strings.LastIndexByte(s.Console, ':')+1:]
	r := s.Browser().JSON("POST", "session", map[string]string{"access_key": started.RootUser,
		"secret_key": started.RootPassword})
	if why := expect(r, http.StatusForbidden, "PlainHTTP"); why != "" {
		t.Error(why)
	}
	if r := s.Browser().Send(started.Request{Method: "GET", Path: "/healthz"}); r.Status != http.StatusOK {
		t.Errorf("health checks: %d", r.Status)
	}
}
