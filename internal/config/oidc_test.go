// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/oidc"
)

func loadText(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Inputs{File: file})
}

func TestProvidersAreRead(t *testing.T) {
	c, err := loadText(t, `
sts:
  max_duration: 2h
oidc:
  company:
    issuer: https://login.example.com/realms/a
    audiences: [storage, tools]
    policies: [everybody]
    group_claim: realm_access.roles
  ci:
    issuer: http://127.0.0.1:5556
    audiences: [ci]
    keys_max_age: 5m
    policy_claim: ""
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Providers(), " "); got != "ci company" {
		t.Errorf("providers %s", got)
	}
	a, b := c.OIDC["company"], c.OIDC["ci"]
	if a.Issuer != "https://login.example.com/realms/a" || len(a.Audiences) != 2 || a.UserClaim != "sub" ||
		a.PolicyClaim != "policy" || a.GroupClaim != "realm_access.roles" || a.KeysMaxAge != time.Hour {
		t.Errorf("%+v", a)
	}
	if b.PolicyClaim != "" || b.GroupClaim != "groups" || b.KeysMaxAge != 5*time.Minute {
		t.Errorf("%+v", b)
	}
	if c.STS.MaxDuration != 2*time.Hour || c.STS.MaxSessions != 10000 {
		t.Errorf("%+v", c.STS)
	}
}

func TestWrongProvidersAreRefused(t *testing.T) {
	const ok = "    issuer: https://a.example.com\n    audiences: [x]\n"
	for _, c := range []struct{ text, want string }{
		{"oidc: 3\n", "expected the names of providers"},
		{"oidc:\n  Big:\n" + ok, "no name of a provider"},
		{"oidc:\n  a:\n    audiences: [x]\n", "oidc.a.issuer: is not set"},
		{"oidc:\n  a:\n    issuer: https://a.example.com\n", "oidc.a.audiences: is not set"},
		{"oidc:\n  a:\n    issuer: http://a.example.com\n", `"http://a.example.com" uses plain HTTP to another machine`},
		{"oidc:\n  a:\n    issuer: ldap://a\n", `"ldap://a" is no URL of an issuer; expected https://HOST/PATH`},
		{"oidc:\n  a:\n    issuer: https://a/?x=1\n", "has a user name, a query or a fragment"},
		{"oidc:\n  a:\n    issuerr: https://a\n", "did you mean oidc.a.issuer"},
		{"oidc:\n  a:\n" + ok + "    keys_max_age: 1s\n", "expected 1m to 24h"},
		{"oidc:\n  a:\n" + ok + "    user_claim: ''\n", "is empty"},
		{"oidc:\n  a:\n" + ok + "    policy_claim: ''\n    group_claim: ''\n", "its users may do nothing"},
		{"oidc:\n  a:\n" + ok + "  b:\n" + ok, "which is the issuer of oidc.a too"},
		{"sts:\n  max_duration: 1m\n", "expected 15m to 168h"},
		{"sts:\n  max_sessions: 0\n", "expected a whole number from 1 to 1000000"},
	} {
		_, err := loadText(t, c.text)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, expected %q", c.text, err, c.want)
		}
	}
}

// TestTheSameIssuersAreAccepted: the configuration and package oidc agree, so that a checked server starts.
func TestTheSameIssuersAreAccepted(t *testing.T) {
	for _, url := range []string{"https://a", "https://a/b", "http://127.0.0.1:1/x", "http://[::1]:2", "http://localhost",
		"http://a", "ftp://a", "a", "https://u@h", "https://h#f", "https://", "http://127.0.0.1.example.com"} {
		_, err := loadText(t, "oidc:\n  a:\n    issuer: '"+url+"'\n    audiences: [x]\n")
		if why := oidc.CheckURL(url); (why == "") != (err == nil) {
			t.Errorf("%s: the configuration says %v, the package %q", url, err, why)
		}
	}
}
