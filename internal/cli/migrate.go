// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/migrate"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/units"
)

// migrateFlags are the flags of migrate.
type migrateFlags struct {
	target objectFlags
	source struct{ profile, access, secret, region, ca string }

	prefix  string
	journal string
	workers int
	dryRun  bool
	asJSON  bool
}

func newMigrate(a *app) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "migrate SOURCE [BUCKET...]",
		Short: "Copy buckets with all versions from MinIO or another S3 server, verified, and go on after an interruption",
		Long: `Copy buckets from MinIO or another S3 server to a NebulaIO server.

SOURCE is the URL of the other server, such as http://minio:9000. Without BUCKET,
all buckets are copied. The copy has all versions and delete markers in order, with
their times, ETags, metadata, tags, retention and legal holds, and the settings of
the buckets. The source is only read, and may go on serving.

The target is the server of --endpoint. The account of the target must have the
role admin. Each version is compared with its checksum before it becomes visible.

Run the command again to copy what was written meanwhile. If the command is
interrupted or killed, run it again: it goes on where it ended. A version is never
copied twice, and nothing is deleted at the target.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errs.New(errs.Invalid, cmd.Name(), "", "no source given; expected the URL of an S3 server")
			}
			return nil
		},
		RunE: a.run(func(ctx context.Context, args []string) error { return f.run(ctx, a, args[0], args[1:]) }),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	envVar(fs, textFlag(&f.source.access, "KEY", "an access key"), "source-access-key",
		"access key of the account at the source; its secret key comes from NEBULAIO_SOURCE_SECRET_KEY or --source-secret-file")
	fs.Var(textFlag(&f.source.secret, "FILE", "a file"), "source-secret-file",
		"file whose first line is the secret key of the account at the source")
	fs.Var(textFlag(&f.source.profile, "NAME", "a profile of the AWS tools"), "source-profile",
		"profile in ~/.aws/config and ~/.aws/credentials with the keys of the source")
	fs.Var(textFlag(&f.source.region, "REGION", "a region"), "source-region", "S3 region of the source; default us-east-1")
	fs.Var(textFlag(&f.source.ca, "FILE", "a file"), "source-ca-file",
		"PEM file with CA certificates to trust at the source in addition to those of the system")
	fs.StringVar(&f.prefix, "prefix", "", "copy only objects whose keys begin with `PREFIX`")
	fs.Var(count(&f.workers, 8, 1), "workers", "number of objects that are copied at the same time")
	fs.Var(textFlag(&f.journal, "FILE", "a file"), "journal",
		"file that remembers how far the migration has come; default a file in the user's cache directory")
	fs.BoolVar(&f.dryRun, "dry-run", false, "compare both servers, print what would be copied, and change nothing")
	fs.BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
	f.target.defineServer(fs)
	return cmd
}

func (f *migrateFlags) run(ctx context.Context, a *app, source string, buckets []string) error {
	from, err := f.openSource(ctx, a, source)
	if err != nil {
		return err
	}
	defer from.Close()
	settings, err := f.target.settings(a)
	if err != nil {
		return err
	}
	account, err := place.Resolve(ctx, settings)
	if err != nil {
		return err
	}
	to, err := versions.NewServer(account.Options())
	if err != nil {
		return err
	}
	defer to.Close()
	if from.Endpoint() == to.Endpoint() {
		return errs.New(errs.Invalid, "migrate", source,
			"is the target too").WithFix("name the NebulaIO server with --endpoint")
	}
	o := migrate.Options{From: from, To: to, Buckets: buckets, Prefix: f.prefix, Workers: f.workers, DryRun: f.dryRun}
	if !f.dryRun {
		path, err := f.journalPath(a, from.Endpoint(), to.Endpoint())
		if err != nil {
			return err
		}
		if o.Journal, err = migrate.OpenJournal(path, from.Endpoint(), to.Endpoint(), f.prefix); err != nil {
			return err
		}
		defer o.Journal.Close()
	}
	p := &sharedProgress{p: a.startWork("comparing both servers", f.asJSON)}
	o.Progress = func(now migrate.Progress) {
		p.say(fmt.Sprintf("%s: %d keys compared, %d versions copied, %s", now.Bucket, now.Keys, now.Versions,
			units.Bytes(now.Bytes)))
	}
	r, err := migrate.Run(ctx, o)
	p.clear()
	if err == nil || len(r.Buckets) > 0 && !f.asJSON { // with --json, a failure is the only object
		if e := a.printResult(f.asJSON, r, func(w io.Writer) { printMigration(w, &r) }); e != nil {
			return e
		}
	}
	return interrupted(ctx, err)
}

// openSource opens the server that is copied from.
func (f *migrateFlags) openSource(ctx context.Context, a *app, source string) (*versions.Server, error) {
	u, err := url.Parse(source)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.User != nil {
		return nil, errs.New(errs.Invalid, "migrate", source, "is no server; expected a URL such as http://minio:9000").
			WithFix("name buckets after the URL, and keys with --source-access-key")
	}
	s := place.Settings{Endpoint: source, Region: f.source.region, Profile: f.source.profile, AccessKey: f.source.access,
		CAFile: f.source.ca, Env: func(name string) string {
			if strings.HasPrefix(name, "NEBULAIO_") || name == "AWS_ACCESS_KEY_ID" || name == "AWS_CA_BUNDLE" {
				return "" // these belong to the target
			}
			return a.Env(name)
		}}
	if s.AccessKey != "" {
		if s.SecretKey, err = f.sourceSecret(a); err != nil {
			return nil, err
		}
	}
	account, err := place.Resolve(ctx, s)
	if err != nil {
		return nil, err
	}
	return versions.NewServer(account.Options())
}

func (f *migrateFlags) sourceSecret(a *app) (string, error) {
	if f.source.secret == "" {
		if secret := a.Env("NEBULAIO_SOURCE_SECRET_KEY"); secret != "" {
			return secret, nil
		}
		return "", errs.New(errs.Invalid, "use access key", f.source.access, "has no secret key").
			WithFix("give the secret key too: NEBULAIO_SOURCE_SECRET_KEY or --source-secret-file")
	}
	b, err := os.ReadFile(f.source.secret)
	if err != nil {
		return "", errs.Wrap("read secret key", f.source.secret, err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", errs.New(errs.Invalid, "read secret key", f.source.secret,
			"its first line is empty; expected the secret key")
	}
	return line, nil
}

// journalPath returns the file of the journal: one for each pair of servers.
func (f *migrateFlags) journalPath(a *app, source, target string) (string, error) {
	if f.journal != "" {
		return f.journal, nil
	}
	dir := a.Env("XDG_CACHE_HOME")
	if dir == "" {
		home := a.Env("HOME")
		if home == "" {
			return "", errs.New(errs.Invalid, "migrate", "", "there is no home directory for the journal").
				WithFix("give --journal FILE")
		}
		dir = filepath.Join(home, ".cache")
	}
	sum := sha256.Sum256([]byte(source + "\n" + target + "\n" + f.prefix))
	return filepath.Join(dir, "nebulaio", "migrate", hex.EncodeToString(sum[:8])+".json"), nil
}

func printMigration(w io.Writer, r *migrate.Report) {
	would := ""
	if r.DryRun {
		would = "to copy: "
	}
	for i := range r.Buckets {
		b := &r.Buckets[i]
		field(w, "bucket", "%s: %s%s, %s, %s; %d were there already", printable(s3.URL(b.Name, "")), would,
			plural(int(b.Versions), "version"), plural(int(b.Markers), "delete marker"), units.Bytes(b.Bytes), b.Present)
		if len(b.Settings) > 0 {
			field(w, "settings", "%s", strings.Join(b.Settings, ", "))
		}
		if b.Kept > 0 {
			field(w, "kept", "%s that only the target has", plural(int(b.Kept), "version"))
		}
		for _, n := range b.Notes {
			field(w, "note", "%s: %s", printable(n.Name), printable(n.Why))
		}
		for _, e := range b.Failures {
			field(w, "failed", "%s: %s", printable(e.Key), printable(e.Error))
		}
	}
	field(w, "total", "%s%s, %s, %s; %d were there already", would, plural(int(r.Total.Versions), "version"),
		plural(int(r.Total.Markers), "delete marker"), units.Bytes(r.Total.Bytes), r.Total.Present)
}
