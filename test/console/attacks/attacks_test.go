// SPDX-License-Identifier: Apache-2.0

// Package attacks_test attacks the console of a running server, as a hostile page, a hostile user or somebody on the
// network would. Every attempt fails the test if it succeeds.
package attacks_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/test/console/started"
)

// attempt is one attack. The function try returns what the attacker achieved, or "".
type attempt struct {
	name string
	try  func(w *world) string
}

// world is a server with an administrator, a victim with a bucket, and an attacker with an account without rights.
type world struct {
	t        *testing.T
	s        *started.Server
	root     *started.Browser
	victim   *started.Browser
	attacker *started.Browser
}

// leastAttempts is the number of attempts that the tests make at least.
const leastAttempts = 60

// script is what an attacker wants a browser to run.
const script = `<script>alert(1)</script>`

func newWorld(t *testing.T, settings map[string]string) *world {
	t.Helper()
	w := &world{t: t, s: started.Run(t, settings)}
	w.s.AddUser("victim", iam.RoleUserPlus)
	w.s.AddUser("attacker", iam.RoleUser)
	w.root = w.s.Root()
	w.victim = w.s.LogIn("victim", "victim-secret")
	w.attacker = w.s.LogIn("attacker", "attacker-secret")
	w.victim.Must("POST", "buckets", map[string]any{"name": "private", "versioning": true})
	w.victim.Must("POST", "buckets", map[string]any{"name": "other"})
	if r := w.victim.Put("private", "secret.txt", "the secret", nil); r.Status != http.StatusOK {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	return w
}

func groups() [][]attempt {
	return [][]attempt{markup(), crossSite(), framing(), sessions(), paths(), rights(), limits()}
}

func TestNoAttemptSucceeds(t *testing.T) {
	w := newWorld(t, map[string]string{"console.benchmarks": benchmarks(t)})
	n := 0
	for _, group := range groups() {
		for _, a := range group {
			n++
			if got := a.try(w); got != "" {
				t.Errorf("%s: %s", a.name, got)
			}
		}
	}
	if n < leastAttempts {
		t.Errorf("%d attempts, expected at least %d", n, leastAttempts)
	}
}

// expect returns what is wrong with the status of a reply.
func expect(r *started.Reply, status int, code string) string {
	if r.Status != status || code != "" && r.Code() != code {
		return fmt.Sprintf("status %d, code %q, expected %d %s: %.200s", r.Status, r.Code(), status, code, r.Body)
	}
	return ""
}

// inert returns why a browser could run something in a reply: it must be JSON without markup that nobody sniffs.
func inert(r *started.Reply) string {
	switch h := r.Header; {
	case !strings.HasPrefix(h.Get("Content-Type"), "application/json"):
		return "the type is " + h.Get("Content-Type")
	case h.Get("X-Content-Type-Options") != "nosniff":
		return "the type may be guessed"
	case strings.ContainsAny(string(r.Body), "<>"):
		return fmt.Sprintf("the body has markup: %.200s", r.Body)
	case !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'"):
		return "the policy is " + h.Get("Content-Security-Policy")
	}
	return ""
}

// saved returns why a browser could show a download instead of saving it.
func saved(r *started.Reply) string {
	switch h := r.Header; {
	case r.Status != http.StatusOK:
		return fmt.Sprintf("status %d: %.200s", r.Status, r.Body)
	case h.Get("Content-Type") != "application/octet-stream":
		return "the type is " + h.Get("Content-Type")
	case !strings.HasPrefix(h.Get("Content-Disposition"), "attachment;"):
		return "it is no attachment: " + h.Get("Content-Disposition")
	case h.Get("X-Content-Type-Options") != "nosniff":
		return "the type may be guessed"
	case !strings.Contains(h.Get("Content-Security-Policy"), "sandbox"):
		return "the policy is " + h.Get("Content-Security-Policy")
	}
	return ""
}

// put stores an object of the attacker's making in the victim's bucket, as a shared bucket allows it.
func (w *world) put(key, content, kind string) {
	w.t.Helper()
	if r := w.victim.Put("other", key, content, map[string]string{"Content-Type": kind}); r.Status != http.StatusOK {
		w.t.Fatalf("%q: %d %s", key, r.Status, r.Body)
	}
}

func key(name string) string { return "key=" + url.QueryEscape(name) }
