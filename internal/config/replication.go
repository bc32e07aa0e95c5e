// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Replication holds the settings of one target of bucket replication.
type Replication struct {
	Endpoint string
	Region   string
	// AccessKeyEnv and SecretKeyEnv are the names of environment variables.
	AccessKeyEnv, SecretKeyEnv string
	AddressingStyle            string // where requests name the bucket: "path", or "virtual" for the host name
	CAFile                     string
}

// mostTargets is the largest number of targets of bucket replication.
const mostTargets = 64

// Targets returns the names of the targets of bucket replication in order.
func (c *Config) Targets() []string { return namesOf(c.Replication) }

// targetFields returns the settings of the replication target with the given name.
func targetFields(name string) []field {
	at := func(pick func(*Replication) any) func(*Config) any {
		return func(c *Config) any { return pick(c.Replication[name]) }
	}
	return []field{
		{Key: Key{Name: "endpoint", Type: Text,
			Help: "URL of the S3 server that gets copies of replicated buckets, such as https://s3.example.com. Each target " +
				"needs an endpoint."},
			bind: at(func(r *Replication) any { return &r.Endpoint }), check: endpoint},
		{Key: Key{Name: "region", Type: Text, Default: "us-east-1",
			Help: "Region for which requests to the target are signed."},
			bind: at(func(r *Replication) any { return &r.Region }), check: region},
		{Key: Key{Name: "access_key_env", Type: Text,
			Help: "Name of the environment variable that holds the access key for the target. On a NebulaIO server, the " +
				"account must have the role admin."},
			bind: at(func(r *Replication) any { return &r.AccessKeyEnv }), check: variableName},
		{Key: Key{Name: "secret_key_env", Type: Text,
			Help: "Name of the environment variable that holds the secret key for the target."},
			bind: at(func(r *Replication) any { return &r.SecretKeyEnv }), check: variableName},
		{Key: Key{Name: "addressing_style", Type: Choice, Default: "path", Choices: []string{"path", "virtual"},
			Help: "Where requests name the bucket: in the path, or in the host name."},
			bind: at(func(r *Replication) any { return &r.AddressingStyle })},
		{Key: Key{Name: "ca_file", Type: Text,
			Help: "PEM file with additional certificate authorities for the target."},
			bind: at(func(r *Replication) any { return &r.CAFile })},
	}
}

// checkTargets checks settings of replication targets that depend on each other.
func (c *Config) checkTargets() error {
	for _, name := range c.Targets() {
		r, key := c.Replication[name], "replication."+name
		bad := func(sub, msg, fix string) error {
			return errs.New(errs.Invalid, "read configuration", key+sub, msg).WithFix(fix)
		}
		switch {
		case r.Endpoint == "":
			return bad(".endpoint", "is not set", "set the URL of the S3 server, such as https://s3.example.com")
		case r.AccessKeyEnv == "":
			return bad(".access_key_env", "is not set", "name the environment variable that holds the access key")
		case r.SecretKeyEnv == "":
			return bad(".secret_key_env", "is not set", "name the environment variable that holds the secret key")
		}
	}
	return nil
}

// targetName checks the name of a replication target, which becomes a part of ARNs.
func targetName(s string) string {
	if s == "" || len(s) > 32 || strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	}) {
		return "is no name of a target; expected 1 to 32 letters in lower case, digits and dashes"
	}
	return ""
}
