// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"os"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
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
		return profileCredentials(ctx, name, u)
	}
	return nil, nil
}

// profileCredentials returns the keys of a profile. The keys of the server's environment do not count, because each
// upstream bucket names its own.
func profileCredentials(ctx context.Context, name string, u *config.Upstream) (s3.CredentialsProvider, error) {
	profile := u.Profile
	if profile == "" {
		profile = "default"
	}
	a, err := place.Resolve(ctx, place.Settings{Endpoint: u.Endpoint, Region: u.Region, Profile: profile,
		Env: func(variable string) string {
			switch {
			case variable == "AWS_SHARED_CREDENTIALS_FILE" && u.CredentialsFile != "":
				return u.CredentialsFile
			case variable == "HOME", variable == "AWS_SHARED_CREDENTIALS_FILE", variable == "AWS_CONFIG_FILE":
				return os.Getenv(variable)
			}
			return ""
		}})
	if err != nil {
		return nil, errs.Wrap("add upstream bucket", name, err)
	}
	if a.Credentials == nil {
		return nil, errs.New(errs.Invalid, "add upstream bucket", name, "the profile "+profile+" has no keys").
			WithFix("add aws_access_key_id and aws_secret_access_key to the profile")
	}
	return a.Credentials, nil
}
