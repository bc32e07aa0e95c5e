// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// objectFlags say which server s3:// names are of. A secret is no flag: what
// is on a command line can be read by everybody on the machine.
type objectFlags struct {
	client nebulaio.ClientOptions
	secret string // file
}

func (f *objectFlags) define(fs *pflag.FlagSet) {
	text := func(dst *string, kind, want string) *value {
		return &value{kind: kind, want: want, set: func(s string) error {
			*dst = s
			return nil
		}}
	}
	envVar(fs, text(&f.client.Endpoint, "URL", "a URL such as http://localhost:9000"), "endpoint", "server of s3:// names; default AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or http://localhost:9000")
	envVar(fs, text(&f.client.AccessKey, "KEY", "an access key"), "access-key", "access key of the account that asks; default AWS_ACCESS_KEY_ID. The secret is read from NEBULAIO_SECRET_KEY, AWS_SECRET_ACCESS_KEY or --secret-file")
	fs.Var(text(&f.secret, "FILE", "a file"), "secret-file", "file whose first line is the secret key")
	fs.Var(text(&f.client.Region, "REGION", "a region"), "region", "region of the server; default AWS_REGION or us-east-1")
	envVar(fs, text(&f.client.Door, "DOOR", "auto, require, off or the path of a socket"), "door", "whether objects of a server on this host come through its socket: auto, require, off or the socket's path; default auto")
	envVar(fs, count(&f.client.Connections, 0, 0), "connections", "number of HTTP connections that carry one object; 0 lets the client choose")
	fs.Var(text(&f.client.CAFile, "FILE", "a file"), "ca-file", "file of certificates in PEM to trust beside those of the system")
}

// options are the flags with what the environment says of the rest.
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
				return o, errs.New(errs.Invalid, "use secret key", f.secret, "no access key is given with it").WithFix("give --access-key too")
			}
		}
	}
	return o.FromEnvironment(a.Env), nil
}
