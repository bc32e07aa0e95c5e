// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/config"
)

var update = flag.Bool("update", false, "write docs/config.md anew")

// TestTheDocumentationIsTheTable compares docs/config.md with the table of keys. After a change of the table, run
// go test ./internal/config -update.
func TestTheDocumentationIsTheTable(t *testing.T) {
	const path = "../../docs/config.md"
	want := document()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/config.md is not what the table of keys says: go test ./internal/config -update")
	}
}

func document() string {
	var b strings.Builder
	b.WriteString(`# Configuration of the server

` + "`nebulaio server`" + ` reads a YAML file (` + "`--config FILE` or `NEBULAIO_CONFIG`" +
		`), the environment and flags.
If a key has several values, a flag wins over the environment, the environment over the file, and the file over the
default. The server refuses an unknown key, a value of the wrong type and a key that is given twice.
` + "`nebulaio config`" + ` prints each key with its value, the source of the value and the meaning of the key.

A dot in the name of a key stands for a level of the YAML file:

` + "```yaml" + `
data: objects
address: 127.0.0.1:9000
tls:
  generate: true
limits:
  connections: 10000
etag_buckets:
  train-*: crc64nvme
upstream:
  models:
    endpoint: https://s3.example.com
    bucket: company-models
    access_key_env: UPSTREAM_ACCESS_KEY
    secret_key_env: UPSTREAM_SECRET_KEY
oidc:
  company:
    issuer: https://login.example.com
    audiences: [storage]
event_target:
  resize:
    type: webhook
    address: ["https://resize.example.com/events"]
` + "```" + `

The settings of an upstream bucket can be given only in the file, because there is a set of them for each bucket. In the
table, ` + "`BUCKET`" + ` stands for the name of the bucket at this server. In the same way, ` + "`PROVIDER`" + ` stands
for the name of an OpenID Connect provider, and ` + "`TARGET`" + ` for the name of a target of event notifications.

A size is a number with a unit, such as ` + "`64MiB` or `1GB`" + `. A duration is a number with a unit, such as ` +
		"`500ms`, `30s` or `12h`" + `. In the environment and in flags, the items of a list are separated by commas, and
a map is written as ` + "`name=value,name=value`" + `. An address may have port 0: the server then chooses a free port,
and the first line of its standard output shows that port.

| key | type | default | variable | flag | meaning |
|---|---|---|---|---|---|
`)
	for _, k := range slices.Concat(config.Keys(), config.NamedKeys()) {
		form, def, fl := string(k.Type), "", ""
		if len(k.Choices) > 0 && k.Type == config.Choice {
			form = strings.Join(k.Choices, ", ")
		}
		if k.Default != "" {
			def = "`" + k.Default + "`"
		}
		if k.Flag() != "" {
			fl = "`--" + k.Flag() + "`"
		}
		help := k.Help
		if k.EnvOnly {
			help += " " + k.Name + " can be set only in the environment."
		}
		variable := ""
		if k.Env() != "" {
			variable = "`" + k.Env() + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", k.Name, form, def,
			variable, fl, help)
	}
	b.WriteString("\n`go test ./internal/config -update` writes this page, and the same test checks it.\n")
	return b.String()
}
