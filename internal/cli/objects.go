// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// objectFlags describe the server of s3:// names. The secret is not a flag,
// because every user of the machine can read a command line.
type objectFlags struct {
	client nebulaio.ClientOptions
	secret string // file with the secret key
}

func (f *objectFlags) define(fs *pflag.FlagSet) {
	f.defineServer(fs)
	envVar(fs, textFlag(&f.client.Door, "DOOR", "auto, require, off or the path of a socket"), "door",
		"use of the server's door on this host: auto, require, off or the path of its socket; default auto")
}

// textFlag is a flag of any text.
func textFlag(dst *string, kind, want string) *value {
	return &value{kind: kind, want: want, set: func(s string) error {
		*dst = s
		return nil
	}}
}

// defineServer adds the flags of commands that use no door.
func (f *objectFlags) defineServer(fs *pflag.FlagSet) {
	envVar(fs, textFlag(&f.client.Endpoint, "URL", "a URL such as http://localhost:9000"), "endpoint",
		"server of s3:// names; default AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or http://localhost:9000")
	envVar(fs, textFlag(&f.client.AccessKey, "KEY", "an access key"), "access-key",
		"access key of the account; default AWS_ACCESS_KEY_ID. "+
			"The secret key comes from NEBULAIO_SECRET_KEY, AWS_SECRET_ACCESS_KEY or --secret-file")
	fs.Var(textFlag(&f.secret, "FILE", "a file"), "secret-file", "file whose first line is the secret key of the account")
	fs.Var(textFlag(&f.client.Region, "REGION", "a region"), "region",
		"S3 region of the server; default AWS_REGION or us-east-1")
	envVar(fs, count(&f.client.Connections, 0, 0), "connections",
		"number of HTTP connections per object; 0 lets the client choose")
	fs.Var(textFlag(&f.client.CAFile, "FILE", "a file"), "ca-file",
		"PEM file with CA certificates to trust in addition to those of the system")
}

// options returns the client options from the flags and the environment.
func (f *objectFlags) options(a *app) (nebulaio.ClientOptions, error) {
	o := f.client
	if f.secret != "" {
		b, err := os.ReadFile(f.secret)
		if err != nil {
			return o, errs.Wrap("read secret key", f.secret, err)
		}
		line, _, _ := strings.Cut(string(b), "\n")
		if o.SecretKey = strings.TrimSpace(line); o.SecretKey == "" {
			return o, errs.New(errs.Invalid, "read secret key", f.secret, "its first line is empty; expected the secret key")
		}
		if o.AccessKey == "" {
			if o.AccessKey = a.Env("AWS_ACCESS_KEY_ID"); o.AccessKey == "" {
				return o, errs.New(errs.Invalid, "use secret key", f.secret, "no access key is given with it").
					WithFix("give --access-key too")
			}
		}
	}
	return o.FromEnvironment(a.Env), nil
}
