// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// upstreamCredentials returns the keys for an upstream bucket, or nil if requests are not signed.
func upstreamCredentials(ctx context.Context, name string, u *config.Upstream) (s3.CredentialsProvider, error) {
	switch {
	case u.AccessKeyEnv != "":
		var keys s3.Credentials
		var err error
		if keys.AccessKey, err = readVariable(name, "access_key_env", u.AccessKeyEnv); err != nil {
			return nil, err
		}
		if keys.SecretKey, err = readVariable(name, "secret_key_env", u.SecretKeyEnv); err != nil {
			return nil, err
		}
		if u.SessionTokenEnv != "" {
			if keys.SessionToken, err = readVariable(name, "session_token_env", u.SessionTokenEnv); err != nil {
				return nil, err
			}
		}
		return s3.Static(keys), nil
	case u.Profile != "" || u.CredentialsFile != "":
		return nil, errs.New(errs.Unsupported, "add upstream bucket", name, "profiles are not read yet")
	}
	return nil, nil
}
