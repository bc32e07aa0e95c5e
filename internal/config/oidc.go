// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// STS holds the limits of temporary keys.
type STS struct {
	MaxDuration time.Duration // longest time for which temporary keys are valid
	MaxSessions int           // largest number of temporary keys at a time
}

// OIDC holds the settings of one OpenID Connect provider, whose tokens clients exchange for temporary keys.
type OIDC struct {
	Issuer                             string
	Audiences                          []string
	UserClaim, PolicyClaim, GroupClaim string
	Policies                           []string // policies of every user of the provider
	CAFile                             string
	KeysMaxAge                         time.Duration
}

// mostProviders is the largest number of OpenID Connect providers.
const mostProviders = 32

// Providers returns the names of the OpenID Connect providers in order.
func (c *Config) Providers() []string { return namesOf(c.OIDC) }

// stsFields returns the keys of temporary keys.
func stsFields() []field {
	return []field{
		{Key: Key{Name: "sts.max_duration", Type: Duration, Default: "12h", Min: int64(15 * time.Minute),
			Max: int64(7 * 24 * time.Hour),
			Help: "Longest time for which temporary keys are valid. A client that asks AssumeRole or " +
				"AssumeRoleWithWebIdentity for a longer time is refused."},
			bind: func(c *Config) any { return &c.STS.MaxDuration }},
		{Key: Key{Name: "sts.max_sessions", Type: Number, Default: "10000", Min: 1, Max: 1_000_000,
			Help: "Largest number of temporary keys that are valid at a time. Each pair of temporary keys uses about 1 KiB " +
				"of memory, and up to 10 KiB with a session policy. Each user may hold a quarter of sts.max_sessions."},
			bind: func(c *Config) any { return &c.STS.MaxSessions }},
	}
}

// providerFields returns the settings of the OpenID Connect provider with the given name.
func providerFields(name string) []field {
	at := func(pick func(*OIDC) any) func(*Config) any {
		return func(c *Config) any { return pick(c.OIDC[name]) }
	}
	return []field{
		{Key: Key{Name: "issuer", Type: Text,
			Help: "URL of the issuer, exactly as in the claim iss of its tokens. The server reads the issuer's keys from " +
				"`.well-known/openid-configuration` below the URL. Plain HTTP is accepted only for this machine."},
			bind: at(func(p *OIDC) any { return &p.Issuer }), check: issuerURL},
		{Key: Key{Name: "audiences", Type: List,
			Help: "Accepted values of the claim aud, which are usually IDs of clients. A token needs one of them."},
			bind: at(func(p *OIDC) any { return &p.Audiences }), check: notBlank},
		{Key: Key{Name: "user_claim", Type: Text, Default: "sub",
			Help: "Claim that names the user. The issuer must never give the same value to two users."},
			bind: at(func(p *OIDC) any { return &p.UserClaim }), check: notBlank},
		{Key: Key{Name: "policy_claim", Type: Text, Default: "policy",
			Help: "Claim with the names of the user's policies: a list, or a text with commas. A dot leads to a claim " +
				"inside of a claim, such as `realm_access.roles`. An empty policy_claim reads no policies from tokens."},
			bind: at(func(p *OIDC) any { return &p.PolicyClaim })},
		{Key: Key{Name: "group_claim", Type: Text, Default: "groups",
			Help: "Claim with the names of the user's groups, in the form of policy_claim. The user has the policies of the " +
				"groups with these names. An empty group_claim reads no groups from tokens."},
			bind: at(func(p *OIDC) any { return &p.GroupClaim })},
		{Key: Key{Name: "policies", Type: List,
			Help: "Names of policies that every user of the provider has."},
			bind: at(func(p *OIDC) any { return &p.Policies }), check: notBlank},
		{Key: Key{Name: "ca_file", Type: Text,
			Help: "PEM file with additional certificate authorities for the issuer."},
			bind: at(func(p *OIDC) any { return &p.CAFile })},
		{Key: Key{Name: "keys_max_age", Type: Duration, Default: "1h", Min: int64(time.Minute), Max: int64(24 * time.Hour),
			Help: "Time after which the issuer's keys are fetched again. A shorter time of the issuer's Cache-Control header " +
				"counts instead. A token with an unknown key makes the server fetch the keys at once."},
			bind: at(func(p *OIDC) any { return &p.KeysMaxAge })},
	}
}

// checkProviders checks settings of the OpenID Connect providers that depend on each other.
func (c *Config) checkProviders() error {
	issuers := map[string]string{}
	for _, name := range c.Providers() {
		p, key := c.OIDC[name], "oidc."+name
		bad := func(sub, msg, fix string) error {
			return errs.New(errs.Invalid, "read configuration", key+sub, msg).WithFix(fix)
		}
		if p.Issuer == "" {
			return bad(".issuer", "is not set", "set the URL of the issuer, such as https://login.example.com")
		}
		if len(p.Audiences) == 0 {
			return bad(".audiences", "is not set", "set the ID of the client for which the issuer makes tokens")
		}
		if other, twice := issuers[p.Issuer]; twice {
			return bad(".issuer", "is "+p.Issuer+", which is the issuer of oidc."+other+" too",
				"give one provider the audiences of both")
		}
		issuers[p.Issuer] = name
		if p.PolicyClaim == "" && p.GroupClaim == "" && len(p.Policies) == 0 {
			return bad("", "has neither policy_claim nor group_claim nor policies, so that its users may do nothing",
				"set one of them")
		}
	}
	return nil
}

// providerName checks the name of a provider, which becomes a part of its users' names.
func providerName(s string) string {
	if s == "" || len(s) > 32 || strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	}) {
		return "is no name of a provider; expected 1 to 32 letters in lower case, digits and dashes"
	}
	return ""
}

// issuerURL refuses the same URLs as package oidc, so that the server can start with every checked configuration.
func issuerURL(s string) string {
	const expected = "expected https://HOST/PATH, or http:// with a loopback address"
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return "is no URL of an issuer; " + expected
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "has a user name, a query or a fragment; " + expected
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "uses plain HTTP to another machine; " + expected
	}
	return ""
}

func notBlank(s string) string {
	if strings.TrimSpace(s) == "" {
		return "is empty; expected a name"
	}
	return ""
}
