// SPDX-License-Identifier: Apache-2.0

// Package oidc verifies the tokens of OpenID Connect issuers, and turns the claims of a token into an identity. Package
// oidc fetches the keys of an issuer, and fetches them again when the issuer rotates them.
package oidc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Reasons why a token is refused. errors.Is finds one of them in each error that Verify returns.
var (
	// ErrExpired means that the token is genuine but too old.
	ErrExpired = errors.New("the token has expired")
	// ErrRejected means that the token is genuine but not meant for this server, or not valid yet.
	ErrRejected = errors.New("the token is not for this server")
	// ErrInvalid means that the token is malformed, or that no key of the issuer made its signature.
	ErrInvalid = errors.New("the token is not valid")
	// ErrUnreachable means that the issuer's keys could not be fetched.
	ErrUnreachable = errors.New("the issuer does not answer")
)

const (
	// MaxToken is the largest size of a token in bytes, as in AWS.
	MaxToken = 20000
	// maxNames is the largest number of names that are read from a claim.
	maxNames = 256
	// maxName is the largest size of a name in bytes.
	maxName = 255
	// leeway is how far the clock of an issuer may be ahead of ours.
	leeway = time.Minute
)

// algorithms are the signatures that are accepted. Symmetric signatures and "none" are not among them.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// Options describe one issuer.
type Options struct {
	Name   string // name of the provider in the configuration
	Issuer string // URL of the issuer, exactly as in the claim iss
	// Audiences are the accepted values of the claim aud. A token needs one of them.
	Audiences []string
	// UserClaim is the claim that names the user: a unique name that never changes, such as sub.
	UserClaim string
	// PolicyClaim and GroupClaim are the claims that name the policies and the groups of the user; empty means none. A dot
	// leads to a claim inside of a claim, such as realm_access.roles.
	PolicyClaim, GroupClaim string
	// Policies are the names of the policies that every user of the issuer has.
	Policies []string
	// KeysMaxAge is the time after which the issuer's keys are fetched again.
	KeysMaxAge time.Duration
	// Client sends the requests to the issuer. If Client is nil, a client with the certificate authorities of the system
	// is used.
	Client *http.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Provider verifies the tokens of one issuer. A Provider is safe for concurrent use.
type Provider struct {
	o    Options
	keys *keySet
}

// Identity is what a verified token says about its user.
type Identity struct {
	Provider string // name of the provider
	Subject  string // value of the user claim
	Audience string // the accepted audience
	Policies []string
	Groups   []string
	Expires  time.Time // when the token expires
	// Claims are the claims that are texts or lists of texts, by their names in lower case. If a token has very many
	// claims, some are left out.
	Claims map[string][]string
}

// New returns a Provider. New sends no request: the keys of the issuer are fetched for the first token.
func New(o Options) (*Provider, error) {
	const op = "use the issuer"
	if why := CheckURL(o.Issuer); why != "" {
		return nil, errs.New(errs.Invalid, op, o.Issuer, why)
	}
	if len(o.Audiences) == 0 {
		return nil, errs.New(errs.Invalid, op, o.Issuer, "no audience is given; expected one at least")
	}
	if o.UserClaim == "" {
		o.UserClaim = "sub"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.KeysMaxAge <= 0 {
		o.KeysMaxAge = time.Hour
	}
	if o.Client == nil {
		client, err := NewClient("")
		if err != nil {
			return nil, err
		}
		o.Client = client
	}
	return &Provider{o: o, keys: newKeySet(o)}, nil
}

// Name returns the name of the provider in the configuration.
func (p *Provider) Name() string { return p.o.Name }

// Issuer returns the URL of the issuer.
func (p *Provider) Issuer() string { return p.o.Issuer }

// IssuerOf returns the issuer that a token names. IssuerOf verifies nothing, so the result only selects the Provider
// that verifies the token. IssuerOf fails with ErrInvalid if the token is malformed.
func IssuerOf(token string) (string, error) {
	t, err := parse(token)
	if err != nil {
		return "", err
	}
	var c struct {
		Issuer string `json:"iss"`
	}
	if err := t.UnsafeClaimsWithoutVerification(&c); err != nil {
		return "", invalid("its claims cannot be read: %v", err)
	}
	if c.Issuer == "" {
		return "", invalid("it has no claim iss")
	}
	return c.Issuer, nil
}

// parse reads a token without verifying it.
func parse(token string) (*jwt.JSONWebToken, error) {
	if len(token) > MaxToken {
		return nil, invalid("it has %d bytes; expected %d at most", len(token), MaxToken)
	}
	t, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return nil, invalid("it is no signed JSON Web Token with an accepted algorithm: %v", plain(err))
	}
	if len(t.Headers) != 1 {
		return nil, invalid("it has %d signatures; expected one", len(t.Headers))
	}
	return t, nil
}

// Verify checks a token and returns the identity of its user. Verify may fetch the keys of the issuer. The errors of
// Verify are ErrExpired, ErrRejected, ErrInvalid and ErrUnreachable, with the reason.
func (p *Provider) Verify(ctx context.Context, token string) (Identity, error) {
	t, err := parse(token)
	if err != nil {
		return Identity{}, err
	}
	var std jwt.Claims
	all := map[string]any{}
	if err := p.keys.verify(ctx, t, &std, &all); err != nil {
		return Identity{}, err
	}
	now := p.o.Now()
	switch {
	case std.Issuer != p.o.Issuer:
		return Identity{}, invalid("its issuer is %.128q; expected %q", std.Issuer, p.o.Issuer)
	case std.Expiry == nil:
		return Identity{}, invalid("it has no claim exp")
	case !now.Before(std.Expiry.Time()):
		return Identity{}, fail(ErrExpired, "it expired at %s", std.Expiry.Time().UTC().Format(time.RFC3339))
	case std.NotBefore != nil && now.Add(leeway).Before(std.NotBefore.Time()):
		return Identity{}, fail(ErrRejected, "it is not valid before %s", std.NotBefore.Time().UTC().Format(time.RFC3339))
	case std.IssuedAt != nil && now.Add(leeway).Before(std.IssuedAt.Time()):
		return Identity{}, fail(ErrRejected, "it was issued in the future, at %s",
			std.IssuedAt.Time().UTC().Format(time.RFC3339))
	}
	at := slices.IndexFunc(p.o.Audiences, func(a string) bool { return std.Audience.Contains(a) })
	if at < 0 {
		return Identity{}, fail(ErrRejected, "its audience is %.256q; expected %s", []string(std.Audience),
			strings.Join(p.o.Audiences, " or "))
	}
	id := Identity{Provider: p.o.Name, Audience: p.o.Audiences[at], Expires: std.Expiry.Time()}
	if id.Subject, err = nameIn(all, p.o.UserClaim); err != nil {
		return Identity{}, err
	}
	if id.Policies, err = namesIn(all, p.o.PolicyClaim); err != nil {
		return Identity{}, err
	}
	if id.Groups, err = namesIn(all, p.o.GroupClaim); err != nil {
		return Identity{}, err
	}
	id.Policies = unique(append(slices.Clone(p.o.Policies), id.Policies...))
	id.Claims = textsIn(all)
	return id, nil
}

// invalid returns an ErrInvalid with the reason.
func invalid(format string, args ...any) error { return fail(ErrInvalid, format, args...) }

// fail returns an error of kind Permission around one of the reasons.
func fail(reason error, format string, args ...any) error {
	return &errs.Error{Kind: errs.Permission, Op: "verify the token", Msg: fmt.Sprintf(format, args...), Err: reason}
}

// plain returns the text of an error of the library without its prefix.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "go-jose/go-jose: ") }
