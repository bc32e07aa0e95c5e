// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
)

// objectFlags describe the server of s3:// names. The secret is not a flag,
// because every user of the machine can read a command line.
type objectFlags struct {
	client  nebulaio.ClientOptions
	profile string
	secret  string // file with the secret key
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
	envVar(fs, textFlag(&f.client.Endpoint, "URL", "a URL such as http://localhost:9000, or aws"), "endpoint",
		"server of s3:// names, or aws for Amazon; default AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, that of the profile, "+
			"or http://localhost:9000")
	envVar(fs, textFlag(&f.client.AccessKey, "KEY", "an access key"), "access-key",
		"access key of the account; default AWS_ACCESS_KEY_ID or that of the profile. "+
			"The secret key comes from NEBULAIO_SECRET_KEY, AWS_SECRET_ACCESS_KEY or --secret-file")
	fs.Var(textFlag(&f.secret, "FILE", "a file"), "secret-file", "file whose first line is the secret key of the account")
	fs.Var(textFlag(&f.profile, "NAME", "a profile of the AWS tools"), "profile",
		"profile in ~/.aws/config and ~/.aws/credentials that names the server and the keys; default AWS_PROFILE")
	fs.Var(textFlag(&f.client.Region, "REGION", "a region"), "region",
		"S3 region of the server; default AWS_REGION, that of the profile, or us-east-1")
	envVar(fs, count(&f.client.Connections, 0, 0), "connections",
		"number of HTTP connections per object; 0 lets the client choose")
	fs.Var(textFlag(&f.client.CAFile, "FILE", "a file"), "ca-file",
		"PEM file with CA certificates to trust in addition to those of the system; default AWS_CA_BUNDLE")
}

// settings returns what the flags say about the server and the keys.
func (f *objectFlags) settings(a *app) (place.Settings, error) {
	o := f.client
	s := place.Settings{Endpoint: o.Endpoint, Region: o.Region, Profile: f.profile, AccessKey: o.AccessKey,
		CAFile: o.CAFile, InsecureTLS: o.InsecureTLS, Connections: o.Connections, Env: a.Env}
	if f.profile != "" && s.AccessKey == a.Env("NEBULAIO_ACCESS_KEY") {
		s.AccessKey = "" // the flag --profile has precedence over a variable
	}
	if f.secret == "" {
		return s, nil
	}
	b, err := os.ReadFile(f.secret)
	if err != nil {
		return s, errs.Wrap("read secret key", f.secret, err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if s.SecretKey = strings.TrimSpace(line); s.SecretKey == "" {
		return s, errs.New(errs.Invalid, "read secret key", f.secret, "its first line is empty; expected the secret key")
	}
	if s.AccessKey == "" {
		if s.AccessKey = a.Env("AWS_ACCESS_KEY_ID"); s.AccessKey == "" {
			return s, errs.New(errs.Invalid, "use secret key", f.secret, "no access key is given with it").
				WithFix("give --access-key too")
		}
	}
	return s, nil
}

// keysTime is how long the keys of a profile may take to come: a program, a server or an instance gives them.
const keysTime = 30 * time.Second

// options returns the client options from the flags, the environment and the files of the AWS tools. The files are read
// if an argument names an S3 place. Temporary keys are those of this moment.
func (f *objectFlags) options(a *app) (nebulaio.ClientOptions, error) {
	o := f.client
	s, err := f.settings(a)
	if err != nil {
		return o, err
	}
	if !slices.ContainsFunc(a.Args, func(arg string) bool { return strings.Contains(arg, "s3://") }) {
		o.AccessKey, o.SecretKey = s.AccessKey, s.SecretKey
		return o.FromEnvironment(a.Env), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keysTime)
	defer cancel()
	account, err := place.Resolve(ctx, s)
	if err != nil {
		return o, err
	}
	o.Endpoint, o.Region, o.CAFile = account.Endpoint, account.Region, account.CAFile
	o.AccessKey, o.SecretKey, o.SessionToken = "", "", ""
	if account.Credentials != nil {
		keys, err := account.Credentials(ctx)
		if err != nil {
			return o, err
		}
		o.AccessKey, o.SecretKey, o.SessionToken = keys.AccessKey, keys.SecretKey, keys.SessionToken
	}
	return o, nil
}

// clients returns the clients of S3 places. The caller closes it.
func (f *objectFlags) clients(a *app) (*place.Clients, error) {
	s, err := f.settings(a)
	if err != nil {
		return nil, err
	}
	return place.NewClients(s), nil
}
