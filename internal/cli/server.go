// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/node"
)

func newServer(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Serve an object store over S3",
		Long: `Serve an object store over S3.

Settings come from flags, NEBULAIO_ environment variables and a YAML file. A flag
overrides an environment variable, and a variable overrides the file. The command
nebulaio config explains each setting. The administrator's keys come from the
environment variables NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD.

After the first SIGTERM or interrupt, the server accepts no new requests. Requests
in progress can finish within the time of the setting drain_timeout. A second
SIGTERM or interrupt ends the server at once. Acknowledged writes are never lost.

SIGHUP makes the server reload its TLS certificate, unless the server runs on a
terminal.`,
		Args: noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			c, err := s.load(a)
			if err != nil {
				return err
			}
			return a.server(ctx, c, asJSON)
		}),
	}
	s.addAll(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON when the server begins to accept requests")
	return cmd
}

func (a *app) server(ctx context.Context, c *config.Config, asJSON bool) error {
	reload, stop := a.reloads()
	defer stop()
	err := node.Run(ctx, node.Options{
		Config: c, Reload: reload, Version: nebulaio.Version(), Log: a.Stderr, LogIsTerminal: a.StderrIsTerminal,
		NotifySocket: a.Env("NOTIFY_SOCKET"), Warnings: a.warnings,
		Started: func(s node.Started) {
			if asJSON {
				line, _ := json.Marshal(s) // strings and numbers: it cannot fail
				fmt.Fprintf(a.out, "%s\n", line)
				return
			}
			a.printText(func(w io.Writer) { printStarted(w, s) })
		},
	})
	return err
}

// reloads returns a channel that receives each SIGHUP until stop is called. On a
// terminal it receives none: there the signal means that the terminal is gone,
// and it ends the server.
func (a *app) reloads() (<-chan struct{}, func()) {
	if a.NotifyReload == nil || a.StderrIsTerminal {
		return nil, func() {}
	}
	signals, asked, done := make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{})
	stop := a.NotifyReload(signals)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-signals:
				select {
				case asked <- struct{}{}:
				default: // a reload is already pending
				}
			}
		}
	}()
	return asked, func() {
		stop()
		close(done)
	}
}

// printStarted prints the addresses, the keys and example commands.
func printStarted(w io.Writer, s node.Started) {
	fmt.Fprintf(w, "NebulaIO %s\n\n", s.Version)
	field(w, "endpoint", "%s", s.Endpoint)
	field(w, "console", "%s", s.Console)
	field(w, "data", "%s", printable(s.Data))
	field(w, "access", "%s", printable(s.AccessKey))
	secret := `"$NEBULAIO_ROOT_PASSWORD"`
	switch {
	case s.SecretKey != "":
		secret = s.SecretKey
		field(w, "secret", "%s (everybody knows it: set NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD)", s.SecretKey)
	case s.Keys != "":
		field(w, "secret", "in %s", printable(s.Keys))
	default:
		field(w, "secret", "as set in the environment")
	}
	ca := ""
	if s.Fingerprint != "" {
		field(w, "tls", "SHA-256 %s", s.Fingerprint)
		if s.CA != "" {
			ca = " --ca-bundle " + shellWord(s.CA)
		}
	}
	if s.GPUDirect.Enabled {
		field(w, "gpudirect", "%s", printable(s.GPUDirect.Socket))
	}
	fmt.Fprint(w, "\nTry it in another terminal (needs aws-cli: pip install awscli):\n\n")
	if s.Keys != "" {
		fmt.Fprintf(w, "  . %s\n", shellWord(s.Keys))
	}
	fmt.Fprintf(w, "  export AWS_ACCESS_KEY_ID=%s AWS_SECRET_ACCESS_KEY=%s AWS_DEFAULT_REGION=%s\n",
		shellWord(s.AccessKey), secret, shellWord(s.Region))
	aws := "aws --endpoint-url " + shellWord(s.Endpoint) + ca
	fmt.Fprintf(w, "  %s s3 mb s3://first\n  echo hello | %s s3 cp - s3://first/hello.txt\n  %s s3 ls s3://first\n\n", aws,
		aws, aws)
}

// shellWord quotes text so that a shell reads it as one word.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("._@+-/:=", r)
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// settings are the flags of commands that read the server's configuration.
type settings struct {
	file  string
	flags map[string]*string
	fs    *pflag.FlagSet
}

// add adds --config and the flags of the wanted keys.
func (s *settings) add(fs *pflag.FlagSet, wanted func(config.Key) bool) {
	s.fs, s.flags = fs, map[string]*string{}
	fs.StringVar(&s.file, "config", "", "YAML `FILE` with the settings of the server [NEBULAIO_CONFIG]")
	for _, k := range config.Keys() {
		if k.Flag() == "" || !wanted(k) {
			continue
		}
		text := k.Default
		s.flags[k.Name] = &text
		v := &value{kind: kindOf(k), text: text, set: func(t string) error { text = t; return nil }}
		if v.words = k.Choices; k.Type == config.Bool {
			v.words = []string{"true", "false"}
		} else if k.Type == config.Map {
			v.words = nil // they complete only the part after the comma
		}
		f := fs.VarPF(v, k.Flag(), "", k.Help+" ["+k.Env()+"]")
		if k.Type == config.Bool {
			f.NoOptDefVal = "true"
		}
	}
}

func (s *settings) addAll(fs *pflag.FlagSet) { s.add(fs, func(config.Key) bool { return true }) }

// addStore adds the flags that every command on a store has: those that locate the store, and --json.
func (s *settings) addStore(cmd *cobra.Command, asJSON *bool) {
	s.add(cmd.Flags(), func(k config.Key) bool { return k.Name == "data" })
	cmd.Flags().BoolVar(asJSON, "json", false, "print the result as one JSON object")
}

// load reads the configuration with the flags that were given.
func (s *settings) load(a *app) (*config.Config, error) {
	in := config.Inputs{File: s.file, Env: a.Env, Flags: map[string]string{}}
	if in.File == "" {
		in.File = a.Env("NEBULAIO_CONFIG")
	}
	for name, text := range s.flags {
		k := keyOf(name)
		if f := s.fs.Lookup(k.Flag()); f != nil && f.Changed {
			in.Flags[name] = *text
		}
	}
	return config.Load(in)
}

func keyOf(name string) config.Key {
	for _, k := range config.Keys() {
		if k.Name == name {
			return k
		}
	}
	return config.Key{}
}

func kindOf(k config.Key) string {
	switch k.Type {
	case config.Bool:
		return ""
	case config.Number:
		return "N"
	case config.Size:
		return "SIZE"
	case config.Duration:
		return "TIME"
	case config.Choice:
		return "WORD"
	case config.List:
		return "A,B"
	case config.Map:
		return "NAME=VALUE,"
	}
	return "TEXT"
}
