// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/backup"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

func backupOptions(dir string) disk.Options {
	return disk.Options{Dir: dir, Inline: 2000, MemTable: 256 << 10, Reserve: -1}
}

// A backup of a store that goes on holds all that was acknowledged before it began, whole, and restores to a store.
func TestBackupOfARunningStore(t *testing.T) {
	ctx := t.Context()
	root := t.TempDir()
	dir, out, back := filepath.Join(root, "store"), filepath.Join(root, "backup"), filepath.Join(root, "restored")
	s, err := disk.Open(ctx, backupOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	a := newActor(s)
	for _, x := range scenario[:len(scenario)-1] {
		if err := x.do(ctx, a); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
	}
	if err := begin("unfinished").do(ctx, a); err != nil {
		t.Fatal(err)
	}
	if err := part("unfinished", 1, 700_000).do(ctx, a); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{}
	for i := range 60 {
		key, b := fmt.Sprintf("before%02d", i), storetest.Bytes(uint64(i), 100+i*3000)
		if _, err := s.Put(ctx, object.Put{Bucket: "o", Key: key, Size: int64(len(b)),
			Body: bytes.NewReader(b)}); err != nil {
			t.Fatal(err)
		}
		want[key] = b
	}
	if err := s.PutRecord(ctx, "account", "ada", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	// Others go on: what is written and removed meanwhile may be in the backup or not, but never half.
	var stop atomic.Bool
	done := make(chan error, 1)
	load := storetest.NewLoad(context.Background(), 3, s, "busy", 50_000)
	go func() {
		for !stop.Load() {
			if err := load.Step(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	report, err := s.Backup(ctx, backup.Options{To: out, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	if report.Files < 50 || report.Verified == 0 {
		t.Errorf("report: %+v", report)
	}
	stop.Store(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(ctx, backup.Options{To: out}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a backup over another one: %v", err)
	}
	if _, err := s.Backup(ctx, backup.Options{To: filepath.Join(dir, "in")}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a backup into the store: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	onlyOwner(t, out)
	if _, err := disk.Open(ctx, backupOptions(out)); err == nil {
		t.Error("a store opens on a backup")
	}
	if _, err := restored(ctx, out, backupOptions(dir), backup.RestoreOptions{}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a restore over a store: %v", err)
	}
	if _, err := restored(ctx, dir, backupOptions(back), backup.RestoreOptions{}); !errs.Is(err, errs.NotFound) {
		t.Errorf("a restore of what is no backup: %v", err)
	}
	if _, err := restored(ctx, out, backupOptions(back), backup.RestoreOptions{Verify: true}); err != nil {
		t.Fatal(err)
	}
	onlyOwner(t, back)
	wantClean(t, backupOptions(back))
	r, err := disk.Open(ctx, backupOptions(back))
	if err != nil {
		t.Fatal(err)
	}
	for key, b := range want {
		if _, got, err := storetest.Read(ctx, r, object.Ref{Bucket: "o", Key: key}); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%s: %d bytes, %v", key, len(got), err)
		}
	}
	if b, err := r.Record(ctx, "account", "ada"); err != nil || string(b) != "secret" {
		t.Errorf("the account: %q, %v", b, err)
	}
	a.s = r
	if err := complete("unfinished", 1).do(ctx, a); err != nil {
		t.Errorf("an upload goes on in the restored store: %v", err)
	}
	if rep, err := r.Scrub(ctx, disk.ScrubOptions{}); err != nil || rep.Damaged > 0 {
		t.Errorf("scrub: %+v, %v", rep, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// onlyOwner fails where others may look at a file or a directory.
func onlyOwner(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 && filepath.Dir(path) != dir {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%s: %v, %v", dir, info.Mode(), err)
	}
}

// A backup that is interrupted has no name, is refused by restore, and is begun anew.
func TestInterruptedBackup(t *testing.T) {
	root := t.TempDir()
	dir, out := filepath.Join(root, "store"), filepath.Join(root, "backup")
	s, err := disk.Open(t.Context(), backupOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	a := newActor(s)
	for _, x := range []action{scenario[0], put("o", "one", 5000), put("o", "two", 5000)} {
		if err := x.do(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Backup(ctx, backup.Options{To: out, Progress: func(backup.Report) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an interrupted backup has its name: %v", err)
	}
	if _, err := restored(t.Context(), out+".partial", backupOptions(filepath.Join(root, "x")),
		backup.RestoreOptions{}); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a restore of an interrupted backup: %v", err)
	}
	if _, err := s.Backup(t.Context(), backup.Options{To: out}); err != nil {
		t.Errorf("a second try: %v", err)
	}
	foreign := filepath.Join(root, "other.partial")
	if err := os.MkdirAll(filepath.Join(foreign, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(t.Context(), backup.Options{To: filepath.Join(root, "other")}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a directory of others is in the way: %v", err)
	}
}
