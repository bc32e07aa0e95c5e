// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/oidc"
	"github.com/nebulaio/nebulaio/internal/s3api"
)

// temporaryKeys returns the settings of temporary keys. It asks no issuer: an issuer that does not answer must not keep
// the server from its start. The parameter now is the clock by which tokens expire; nil means time.Now.
func temporaryKeys(c *config.Config, now func() time.Time) (*s3api.STS, error) {
	var all []*oidc.Provider
	for _, name := range c.Providers() {
		p := c.OIDC[name]
		client, err := oidc.NewClient(p.CAFile)
		if err != nil {
			return nil, errs.Wrap("use the setting", "oidc."+name+".ca_file", err)
		}
		one, err := oidc.New(oidc.Options{Name: name, Issuer: p.Issuer, Audiences: p.Audiences, UserClaim: p.UserClaim,
			PolicyClaim: p.PolicyClaim, GroupClaim: p.GroupClaim, Policies: p.Policies, KeysMaxAge: p.KeysMaxAge,
			Client: client, Now: now})
		if err != nil {
			return nil, errs.Wrap("use the setting", "oidc."+name, err)
		}
		all = append(all, one)
	}
	return &s3api.STS{MaxDuration: c.STS.MaxDuration, MaxSessions: c.STS.MaxSessions,
		Providers: oidc.NewProviders(all...)}, nil
}
