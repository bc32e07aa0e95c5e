// SPDX-License-Identifier: Apache-2.0

package oidc

import "context"

// Providers verifies tokens of several issuers. Providers is read-only after it was made, and safe for concurrent use.
type Providers struct{ by map[string]*Provider }

// NewProviders returns Providers. Each of them has an issuer of its own.
func NewProviders(all ...*Provider) *Providers {
	p := &Providers{by: make(map[string]*Provider, len(all))}
	for _, one := range all {
		p.by[one.Issuer()] = one
	}
	return p
}

// Len returns the number of providers.
func (p *Providers) Len() int { return len(p.by) }

// Verify checks a token with the Provider of its issuer. Verify fails as Provider.Verify does, and with ErrInvalid if
// no Provider has the issuer.
func (p *Providers) Verify(ctx context.Context, token string) (Identity, error) {
	issuer, err := IssuerOf(token)
	if err != nil {
		return Identity{}, err
	}
	one, ok := p.by[issuer]
	if !ok {
		return Identity{}, invalid("this server has no provider with the issuer %.128q", issuer)
	}
	return one.Verify(ctx, token)
}
