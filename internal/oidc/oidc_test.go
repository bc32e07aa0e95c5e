// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/test/issuer"
)

// clock is a clock that a test moves.
type clock struct {
	mu sync.Mutex
	by time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.by)
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by += d
}

// start runs an issuer and returns a provider of its tokens.
func start(t *testing.T, algorithm string) (*issuer.Issuer, *Provider, *clock) {
	t.Helper()
	var i *issuer.Issuer
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { i.ServeHTTP(w, r) }))
	t.Cleanup(srv.Close)
	var err error
	if i, err = issuer.New(srv.URL, algorithm); err != nil {
		t.Fatal(err)
	}
	c := &clock{}
	p, err := New(Options{Name: "test", Issuer: srv.URL, Audiences: []string{"storage", "tools"}, PolicyClaim: "policy",
		GroupClaim: "realm.groups", Policies: []string{"everybody"}, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return i, p, c
}

func token(t *testing.T, i *issuer.Issuer, w issuer.Token) string {
	t.Helper()
	if w.Subject == "" {
		w.Subject = "alice"
	}
	if w.Audience == nil {
		w.Audience = []string{"storage"}
	}
	if w.Seconds == 0 {
		w.Seconds = 3600
	}
	text, err := i.Sign(w)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTokensOfEachAlgorithmAreVerified(t *testing.T) {
	for _, algorithm := range []string{"RS256", "PS256", "ES256", "EdDSA"} {
		i, p, _ := start(t, algorithm)
		id, err := p.Verify(t.Context(), token(t, i, issuer.Token{Audience: []string{"other", "tools"},
			Claims: map[string]any{"policy": "b, a,,a", "realm": map[string]any{"groups": []string{"g2", "g1"}}}}))
		if err != nil {
			t.Errorf("%s: %v", algorithm, err)
			continue
		}
		if id.Provider != "test" || id.Subject != "alice" || id.Audience != "tools" ||
			!slices.Equal(id.Policies, []string{"a", "b", "everybody"}) || !slices.Equal(id.Groups, []string{"g1", "g2"}) ||
			time.Until(id.Expires) < 50*time.Minute || id.Claims["sub"][0] != "alice" || len(id.Claims["aud"]) != 2 ||
			id.Claims["policy"][0] != "b, a,,a" {
			t.Errorf("%s: %+v", algorithm, id)
		}
	}
}

func TestWrongTokensAreRefused(t *testing.T) {
	i, p, _ := start(t, "ES256")
	other, _, _ := start(t, "ES256")
	good := token(t, i, issuer.Token{})
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."
	hmac := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"key-1"}`)) + "." + parts[1] + "." + parts[2]
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"expired":        {token(t, i, issuer.Token{Seconds: -1}), ErrExpired},
		"wrong audience": {token(t, i, issuer.Token{Audience: []string{"other"}}), ErrRejected},
		"no audience":    {token(t, i, issuer.Token{Audience: []string{}}), ErrRejected},
		"another issuer": {token(t, i, issuer.Token{Issuer: "https://other"}), ErrInvalid},
		"another's key":  {token(t, other, issuer.Token{}), ErrInvalid},
		"other claims": {parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"root"}`)) + "." + parts[2],
			ErrInvalid},
		"no signature":    {none, ErrInvalid},
		"symmetric":       {hmac, ErrInvalid},
		"cut":             {good[:len(good)-4], ErrInvalid},
		"empty":           {"", ErrInvalid},
		"too long":        {strings.Repeat("a", MaxToken+1), ErrInvalid},
		"a number as sub": {token(t, i, issuer.Token{Claims: map[string]any{"policy": 7}}), ErrRejected},
		"control in sub":  {token(t, i, issuer.Token{Subject: "a\nb"}), ErrRejected},
		"a list of lists": {token(t, i, issuer.Token{Claims: map[string]any{"policy": []any{[]string{"a"}}}}), ErrRejected},
	} {
		id, err := p.Verify(t.Context(), c.token)
		if !errors.Is(err, c.want) || !errs.Is(err, errs.Permission) {
			t.Errorf("%s: %+v %v, expected %v", name, id, err, c.want)
		}
	}
	if _, err := p.Verify(t.Context(), good); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestTokensExpire(t *testing.T) {
	i, p, c := start(t, "EdDSA")
	text := token(t, i, issuer.Token{Seconds: 600})
	if _, err := p.Verify(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	c.pass(601 * time.Second)
	if _, err := p.Verify(t.Context(), text); !errors.Is(err, ErrExpired) {
		t.Errorf("%v", err)
	}
}

func TestKeysAreFetchedOnceAndRotate(t *testing.T) {
	i, p, c := start(t, "RS256")
	old := token(t, i, issuer.Token{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := p.Verify(t.Context(), old); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := i.Fetches(); n != 1 {
		t.Fatalf("%d fetches for 20 tokens", n)
	}
	// A new key beside the old one: tokens of both are accepted.
	if err := i.Rotate("ES256", false); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"new": token(t, i, issuer.Token{}), "old": old} {
		if _, err := p.Verify(t.Context(), text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := i.Fetches(); n != 2 {
		t.Errorf("%d fetches after a rotation", n)
	}
	// The old keys are withdrawn: they count no more as soon as the keys are fetched, at the latest after their age.
	if err := i.Rotate("EdDSA", true); err != nil {
		t.Fatal(err)
	}
	c.pass(61 * time.Minute)
	newest := token(t, i, issuer.Token{Seconds: 7200})
	if _, err := p.Verify(t.Context(), newest); err != nil {
		t.Errorf("newest: %v", err)
	}
	withdrawn := token(t, i, issuer.Token{Key: "key-1", Seconds: 7200})
	if _, err := p.Verify(t.Context(), withdrawn); !errors.Is(err, ErrInvalid) {
		t.Errorf("withdrawn: %v", err)
	}
}

func TestUnknownKeysCauseFewFetches(t *testing.T) {
	i, p, c := start(t, "ES256")
	other, _, _ := start(t, "ES256")
	for range 3 {
		if err := other.Rotate("ES256", false); err != nil { // so that its key has an unknown ID
			t.Fatal(err)
		}
	}
	forged := token(t, other, issuer.Token{Issuer: p.Issuer()})
	for range 50 {
		if _, err := p.Verify(t.Context(), forged); !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
	}
	if n := i.Fetches(); n > 1+fetches {
		t.Errorf("%d fetches for 50 forged tokens", n)
	}
	if _, err := p.Verify(t.Context(), token(t, i, issuer.Token{})); err != nil {
		t.Error(err)
	}
	c.pass(refill)
	if err := i.Rotate("ES256", false); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Verify(t.Context(), token(t, i, issuer.Token{})); err != nil {
		t.Errorf("after the refill: %v", err)
	}
}

func TestOldKeysServeWhileTheIssuerIsDown(t *testing.T) {
	i, p, c := start(t, "ES256")
	text := token(t, i, issuer.Token{Seconds: 24 * 3600})
	i.SetDown(true)
	if _, err := p.Verify(t.Context(), text); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("%v", err)
	}
	i.SetDown(false)
	if _, err := p.Verify(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	i.SetDown(true)
	c.pass(90 * time.Minute) // older than their age, and not yet stale
	if _, err := p.Verify(t.Context(), text); err != nil {
		t.Errorf("with old keys: %v", err)
	}
	c.pass(time.Hour)
	if _, err := p.Verify(t.Context(), text); !errors.Is(err, ErrUnreachable) {
		t.Errorf("with stale keys: %v", err)
	}
}

func TestAnIssuerMustDescribeItself(t *testing.T) {
	for name, c := range map[string]struct{ about, keys string }{
		"another issuer": {`{"issuer":"https://other","jwks_uri":"URL/keys"}`, `{"keys":[]}`},
		"keys elsewhere": {`{"issuer":"URL","jwks_uri":"http://192.0.2.1/keys"}`, `{"keys":[]}`},
		"no keys":        {`{"issuer":"URL","jwks_uri":"URL/keys"}`, `{"keys":[]}`},
		"a secret key":   {`{"issuer":"URL","jwks_uri":"URL/keys"}`, `{"keys":[{"kty":"oct","k":"c2VjcmV0c2VjcmV0"}]}`},
		"no JSON":        {`<html>`, ``},
		"a long reply":   {strings.Repeat(" ", maxDocument+1), ``},
	} {
		var url string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := c.keys
			if r.URL.Path == discovery {
				text = c.about
			}
			_, _ = w.Write([]byte(strings.ReplaceAll(text, "URL", url)))
		}))
		url = srv.URL
		i, err := issuer.New(url, "ES256")
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(Options{Issuer: url, Audiences: []string{"storage"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Verify(t.Context(), token(t, i, issuer.Token{})); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
		srv.Close()
	}
}

func TestTheIssuerOfATokenIsFound(t *testing.T) {
	i, p, _ := start(t, "ES256")
	if got, err := IssuerOf(token(t, i, issuer.Token{})); err != nil || got != p.Issuer() {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range []string{"", "a.b.c", "x"} {
		if _, err := IssuerOf(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := New(Options{Issuer: "http://192.0.2.1", Audiences: []string{"a"}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("plain HTTP: %v", err)
	}
	if _, err := New(Options{Issuer: "https://a"}); !errs.Is(err, errs.Invalid) {
		t.Errorf("no audience: %v", err)
	}
}

func FuzzToken(f *testing.F) {
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJhIn0.AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		issuer, err := IssuerOf(text)
		if err == nil && issuer == "" || err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatalf("%q %v", issuer, err)
		}
	})
}

func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AQAB","y":"AQAB"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parseKeys(text)
		if err == nil && (len(keys) == 0 || len(keys) > mostKeys) || err != nil && !errors.Is(err, ErrUnreachable) {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
	})
}
