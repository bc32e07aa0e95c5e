// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/copying"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/units"
)

// copyFlags are the flags that cp and sync share.
type copyFlags struct {
	objects        objectFlags
	sourceEndpoint string
	sourceProfile  string
	filter         place.Filter
	o              copying.Options
	asJSON         bool
}

func (f *copyFlags) define(fs *pflag.FlagSet) {
	filterFlags(fs, &f.filter)
	fs.Var(size(&f.o.Rate), "limit-rate", "the most bytes per second of all transfers together; 0 means no limit")
	fs.Var(count(&f.o.Concurrency, 0, 0), "concurrency",
		fmt.Sprintf("number of concurrent requests at most; 0 means %d. A server that answers SlowDown gets fewer",
			copying.DefaultConcurrency))
	fs.BoolVar(&f.o.ChecksumFiles, "checksum-file", false, "also write FILE.crc64nvme beside each file that is downloaded")
	fs.Var(textFlag(&f.o.ContentType, "TYPE", "a content type such as text/plain"), "content-type",
		"content type of new objects; default that of the server")
	fs.Var(textFlag(&f.sourceEndpoint, "URL", "a URL such as http://localhost:9000"), "source-endpoint",
		"server of SRC, if it is another one than that of DST")
	fs.Var(textFlag(&f.sourceProfile, "NAME", "a profile of the AWS tools"), "source-profile",
		"profile of SRC, if it is another one than that of DST")
	f.objects.define(fs)
	fs.BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
}

// withEnds opens both ends of a copy, and calls do. The name - stands for a stream and is not opened.
func (f *copyFlags) withEnds(ctx context.Context, a *app, src, dst string, do func(from, to place.Tree) error) error {
	if f.objects.client.Connections == 0 && f.o.Concurrency > 0 {
		f.objects.client.Connections = min(f.o.Concurrency, 256)
	}
	source := f.objects
	if f.sourceEndpoint != "" {
		source.client.Endpoint = f.sourceEndpoint
	}
	if f.sourceProfile != "" {
		source.profile = f.sourceProfile
		if f.sourceEndpoint == "" {
			source.client.Endpoint = ""
		}
	}
	open := func(c *place.Clients, name string) (place.Tree, error) {
		if name == "-" {
			return place.Tree{}, nil
		}
		return openTree(ctx, c, name)
	}
	return f.objects.withClients(ctx, a, func(c *place.Clients) error {
		to, err := open(c, dst)
		if err != nil {
			return err
		}
		if f.sourceEndpoint == "" && f.sourceProfile == "" {
			from, err := open(c, src)
			if err != nil {
				return err
			}
			return do(from, to)
		}
		return source.withClients(ctx, a, func(c *place.Clients) error {
			from, err := open(c, src)
			if err != nil {
				return err
			}
			return do(from, to)
		})
	})
}

func remoteOf(p place.Place, t place.Tree) copying.Remote {
	return copying.Remote{Client: t.Client, Bucket: p.Bucket, Key: p.Key}
}

// copier returns a copier for the flags.
func (f *copyFlags) copier(a *app) (*copying.Copier, error) {
	o := f.o
	if dir := cacheDir(a); dir != "" {
		o.States = filepath.Join(dir, "nebulaio", "uploads")
	}
	return copying.New(o)
}

// cacheDir returns the directory for the caches of this user, or "" if there is none.
func cacheDir(a *app) string {
	if dir := a.Env("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	if home := a.Env("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".cache")
	}
	return ""
}

// watch draws the progress of a copier until the returned function is called.
func (f *copyFlags) watch(a *app, c *copying.Copier, many bool) (stop func()) {
	p := &sharedProgress{p: a.startProgress(0, f.asJSON)}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(redrawEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			s := c.Progress()
			p.draw(func(p *progress) {
				if !many {
					p.update(s.Done, s.Total)
					return
				}
				if p.due(false) {
					p.line(fmt.Sprintf("%d of %d files", s.Files, s.AllFiles), progressText(s.Done, s.Total, a.Now().Sub(p.began)))
				}
			})
		}
	}()
	return func() {
		close(done)
		<-ended
		p.clear()
	}
}

// report runs one copy and prints its result.
func (f *copyFlags) report(ctx context.Context, a *app, src, dst string,
	do func(*copying.Copier) (copying.Result, error)) error {
	c, err := f.copier(a)
	if err != nil {
		return err
	}
	began := a.Now()
	stop := f.watch(a, c, false)
	r, err := do(c)
	stop()
	if err != nil {
		return resumable(ctx, err, src != "-")
	}
	j := copyJSON{Result: r, Seconds: a.Now().Sub(began).Seconds()}
	j.Source, j.Destination = src, dst
	return a.printResult(f.asJSON, j, j.print)
}

// resumable adds to the error of an interrupted copy how to go on.
func resumable(ctx context.Context, err error, can bool) error {
	if ctx.Err() == nil || !can {
		return err
	}
	cause := context.Cause(ctx)
	return &errs.Error{Kind: errs.Cancelled, Op: "copy", Name: "", Err: cause,
		Fix: "run the same command again: it goes on where it ended"}
}

func (j copyJSON) print(w io.Writer) {
	field(w, "copied", "%s to %s", printable(j.Source), printable(j.Destination))
	field(w, "size", "%s", sized(j.Bytes))
	if j.Resumed > 0 {
		field(w, "resumed", "%s were there already", sized(j.Resumed))
	}
	field(w, "way", "%s", j.Way)
	field(w, "verified", "%s", verifiedText(j.Verified))
	for _, n := range j.Notes {
		field(w, "note", "%s", printable(n))
	}
	field(w, "time", "%s%s", seconds(j.Seconds), rateText(j.Moved, j.Seconds))
}

func rateText(n int64, s float64) string {
	if s <= 0 || n == 0 {
		return ""
	}
	return ", " + units.Rate(float64(n)/s/1e9)
}

// verifiedText explains what was compared.
func verifiedText(how string) string {
	switch how {
	case "length+etag":
		return "length and ETag; the server keeps no checksum of the whole"
	case "length":
		return "length; a file has no checksum to compare with"
	case "md5":
		return "md5: the content equals its ETag"
	case "nothing":
		return "nothing: this is a dry run"
	}
	return how + " of the whole"
}

// treeJSON is the result of a copy of many files.
type treeJSON struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	DryRun      bool   `json:"dry_run"`
	copying.Summary
	Actions []copying.Action `json:"actions,omitempty"` // of a dry run, and of what failed
	Seconds float64          `json:"seconds"`
}

// mostActions limits the actions that are kept for JSON.
const mostActions = 100_000

// trees copies everything below a folder.
func (f *copyFlags) trees(ctx context.Context, a *app, from, to place.Tree, o copying.TreeOptions) error {
	kind, _, err := from.Look(ctx)
	if err != nil {
		return err
	}
	if kind != place.Many {
		return notFolder(from, kind)
	}
	c, err := f.copier(a)
	if err != nil {
		return err
	}
	j := treeJSON{Source: from.String(), Destination: to.String(), DryRun: o.DryRun}
	began := a.Now()
	o.Each = func(x copying.Action) {
		if (o.DryRun || x.Error != "") && len(j.Actions) < mostActions {
			j.Actions = append(j.Actions, x)
		}
	}
	stop := f.watch(a, c, true)
	j.Summary, err = c.CopyTree(ctx, from, to, o)
	stop()
	j.Seconds = a.Now().Sub(began).Seconds()
	if err != nil {
		return resumable(ctx, err, true)
	}
	return a.printResult(f.asJSON, j, j.print)
}

func notFolder(t place.Tree, kind place.Kind) error {
	if kind == place.Missing {
		return errs.New(errs.NotFound, "copy", t.String(), "nothing is there").WithFix("check the name; list what is there")
	}
	return errs.New(errs.Invalid, "copy", t.String(), "is a file or an object; expected a folder").
		WithFix("copy one file with: nebulaio cp SRC DST")
}

func (j treeJSON) print(w io.Writer) {
	if j.DryRun {
		for _, x := range j.Actions {
			switch x.Action {
			case "copy":
				fmt.Fprintf(w, "would copy %s to %s (%s, %s)\n", printable(x.Source), printable(x.Destination),
					units.Bytes(x.Bytes), x.Why)
			case "delete":
				fmt.Fprintf(w, "would delete %s (%s)\n", printable(x.Destination), x.Why)
			default:
				fmt.Fprintf(w, "would skip %s (%s)\n", printable(x.Source), x.Why)
			}
		}
		field(w, "dry run", "%s to copy with %s, %d to delete, %d are the same", plural(int(j.Copied), "file"),
			units.Bytes(j.Bytes), j.Deleted, j.Same)
		return
	}
	field(w, "copied", "%s to %s", printable(j.Source), printable(j.Destination))
	field(w, "files", "%d copied, %d the same, %d deleted, %d skipped", j.Copied, j.Same, j.Deleted, j.Skipped)
	field(w, "size", "%s", sized(j.Bytes))
	if j.Resumed > 0 {
		field(w, "resumed", "%s were there already", sized(j.Resumed))
	}
	for _, how := range slices.Sorted(maps.Keys(j.Verified)) {
		field(w, "verified", "%s: %s", plural(int(j.Verified[how]), "file"), verifiedText(how))
	}
	for _, n := range j.Notes {
		field(w, "note", "%s", printable(n))
	}
	field(w, "time", "%s%s", seconds(j.Seconds), rateText(j.Moved, j.Seconds))
}

// download copies an object to a file, through the door of a server on this host if there is one.
func (f *copyFlags) download(ctx context.Context, a *app, c *copying.Copier, from place.Tree,
	path string) (copying.Result, error) {
	remote := remoteOf(from.Place, from)
	r, done, err := f.throughDoor(ctx, a, c, remote, path)
	if done {
		return r, err
	}
	r, e := c.Download(ctx, remote, path)
	if err != nil && e == nil && f.objects.client.Door != "" && f.objects.client.Door != "off" {
		r.Notes = append(r.Notes, "not through the door: "+errs.MessageOf(err))
	}
	return r, e
}

// throughDoor downloads an object through the door; done is false if there is no door to use.
func (f *copyFlags) throughDoor(ctx context.Context, a *app, c *copying.Copier, from copying.Remote,
	path string) (r copying.Result,
	done bool, err error) {
	if f.objects.client.Door == "off" {
		return r, false, nil
	}
	require := f.objects.client.Door == "require"
	o := f.objects
	if f.sourceEndpoint != "" {
		o.client.Endpoint = f.sourceEndpoint
	}
	if f.sourceProfile != "" {
		o.profile = f.sourceProfile
	}
	options, err := o.options(a)
	if err != nil {
		return r, require, err
	}
	if !require && !onThisHost(options.Endpoint) {
		return r, false, nil
	}
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		return r, require, err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	client, err := sys.NewClient(options)
	if err != nil {
		return r, require, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	file, err := client.OpenFile(ctx, from.Bucket, from.Key, "", "host")
	if err != nil {
		return r, require || errs.Is(err, errs.NotFound), err
	}
	fd, err := unix.FcntlInt(uintptr(file.Buffered()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return r, require, errors.Join(errs.Wrap("open", from.Name(), err), file.Close())
	}
	opened := os.NewFile(uintptr(fd), from.Name())
	info := file.Info()
	door := copying.DoorInfo{ETag: info.ETag, Version: info.Version, Size: info.Size, Modified: info.Modified}
	door.CRC64, door.HasCRC64 = crc64Of(info.CRC64)
	r, err = c.DownloadOpened(ctx, from, opened, door, func() error { return errors.Join(opened.Close(), file.Close()) },
		path)
	return r, true, err
}

// onThisHost reports whether an endpoint may be a server on this host. Only such a server can have a door, so no other
// server is asked for one.
func onThisHost(endpoint string) bool {
	host := strings.TrimPrefix(strings.TrimPrefix(endpoint, "http://"), "https://")
	host, _, _ = strings.Cut(host, "/")
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	host = strings.Trim(host, "[]")
	name, err := os.Hostname()
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.") || err == nil && host == name
}

// crc64Of reads a CRC-64/NVME in base64, as S3 has it.
func crc64Of(s string) (uint64, bool) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}
