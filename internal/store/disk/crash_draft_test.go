// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/test/effort"
)

// drafted writes an object through a draft. Where err says that nothing can be promised of the outcome, it may be
// there.
func drafted(ctx context.Context, s *disk.Store, bucket, key string, data []byte) error {
	d, err := s.NewDraft(ctx, object.Draft{Bucket: bucket, Key: key, Size: int64(len(data)) + 100})
	if err != nil {
		return err
	}
	f, err := d.Open(false)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return errors.Join(err, d.Abort())
	}
	_, err = d.Commit(ctx, storetest.Seal(data))
	return err
}

// draftStore opens a store on the real file system whose steps are seen; the test is skipped where there can be no
// drafts.
func draftStore(t *testing.T, dir string, fs vfs.FS) *disk.Store {
	t.Helper()
	s, err := disk.Open(t.Context(), disk.Options{Dir: dir, FS: fs, MemTable: 1 << 20, Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CanDraft(t.Context()); errs.Is(err, errs.Unsupported) {
		_ = s.Close()
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOrderOfACommit is TestOrderOfSteps of a draft, which needs real files.
func TestOrderOfACommit(t *testing.T) {
	dir := filepath.Join(storetest.Dir(t), "store")
	r := &trace{}
	fs := &stepFS{FS: vfs.Default, done: func(s step) {
		s.path = "store" + strings.TrimPrefix(s.path, dir)
		if s.to != "" {
			s.to = "store" + strings.TrimPrefix(s.to, dir)
		}
		r.done(s)
	}}
	s := draftStore(t, dir, fs)
	if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	r.on = true
	if err := drafted(t.Context(), s, "b", "k", storetest.Bytes(1, 100_000)); err != nil {
		t.Fatal(err)
	}
	got := "before it is acknowledged:\n" + r.take()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	golden(t, "commit-draft", got+"\nbehind the scenes:\n"+strings.Join(r.behind, "\n")+"\n")
}

// TestEachStepOfADraftFails fails each step of the file system in turn, once or from then on, while a draft replaces an
// object: what is there afterwards is the old object or the new one, whole, and nothing else.
func TestEachStepOfADraftFails(t *testing.T) {
	before, after := storetest.Bytes(1, 50_000), storetest.Bytes(2, 60_000)
	ref := object.Ref{Bucket: "b", Key: "k"}
	for _, once := range []bool{true, false} {
		for k := int64(1); ; k++ {
			dir := filepath.Join(storetest.Dir(t), "store")
			f := &fault{err: syscall.EIO, once: once, match: changes, at: k}
			s := draftStore(t, dir, &stepFS{FS: vfs.Default, before: f.before})
			if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b"}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: "k", Size: -1,
				Body: bytes.NewReader(before)}); err != nil {
				t.Fatal(err)
			}
			f.armed.Store(true)
			failed := drafted(t.Context(), s, "b", "k", after)
			f.armed.Store(false)
			_ = s.Close() // says why the store failed
			if !f.hit.Load() {
				break
			}
			where := fmt.Sprintf("step %d (%v), once %v", k, f.where.Load(), once)
			s = draftStore(t, dir, vfs.Default)
			_, got, err := storetest.Read(t.Context(), s, ref)
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			unsure := failed != nil && strings.Contains(failed.Error(), "known after a restart")
			switch {
			case bytes.Equal(got, after) && (failed == nil || unsure), bytes.Equal(got, before) && failed != nil:
			default:
				t.Fatalf("%s: %d bytes after %v", where, len(got), failed)
			}
			tidy(t, s, dir, where)
		}
	}
}

// tidy ends the test unless a store that it closes has nothing but what it should.
func tidy(t *testing.T, s *disk.Store, dir, where string) {
	t.Helper()
	if st, err := s.Stats(); err != nil || st.DraftFiles != 0 || st.HeldFiles != 0 {
		t.Fatalf("%s: %+v, %v", where, st, err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("%s: close: %v", where, err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "tmp"))
	if err != nil || len(left) > 0 {
		t.Fatalf("%s: tmp/ has %v, %v", where, left, err)
	}
	wantClean(t, disk.Options{Dir: dir, Reserve: -1})
}

// draftKeys is how many keys the child that writes drafts replaces in turn.
const draftKeys = 5

func draftContent(i int) []byte { return storetest.Bytes(uint64(i), 20_000+i*37%3_000_000) }

// TestDraftChild is the process that TestKillsOfDrafts kills.
func TestDraftChild(t *testing.T) {
	dir := os.Getenv("NEBULAIO_DRAFT_DIR")
	if dir == "" {
		t.Skip("it is started by TestKillsOfDrafts")
	}
	tell := os.NewFile(3, "pipe")
	s := draftStore(t, dir, nil)
	if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b"}); err != nil &&
		!errors.Is(err, object.ErrBucketExists) {
		t.Fatal(err)
	}
	var held []object.Handle
	for i := effort.Number(t, "NEBULAIO_DRAFT_FIRST", 0); ; i++ {
		key := fmt.Sprint(i % draftKeys)
		// and forgets it
		if _, err := s.NewDraft(t.Context(), object.Draft{Bucket: "b", Key: key, Size: 10_000}); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(tell, "S %d\n", i)
		if err := drafted(t.Context(), s, "b", key, draftContent(i)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(tell, "A %d\n", i)
		h, err := s.Handle(t.Context(), object.Ref{Bucket: "b", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		f, err := h.Open(false)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if held = append(held, h); len(held) > 8 {
			_ = held[0].Close()
			held = held[1:]
		}
	}
}

// TestKillsOfDrafts kills a process that replaces objects through drafts, forgets others and holds what it has
// replaced: what was acknowledged is there, what was not is there whole or not at all, and of the rest no file is left.
func TestKillsOfDrafts(t *testing.T) {
	dir := filepath.Join(storetest.Dir(t), "store")
	tidy(t, draftStore(t, dir, nil), dir, "before")
	r := rand.New(rand.NewPCG(uint64(effort.Number(t, "NEBULAIO_CRASH_SEED", 1)), 1))
	acked, next := map[string]int{}, 0
	for round := range (effort.Rounds{Test: 2, CI: 6, Long: 100}).Of(t) {
		started := killDrafts(t, dir, next, 5+r.IntN(60), acked)
		where := fmt.Sprintf("round %d", round)
		if round%2 == 0 {
			wantClean(t, disk.Options{Dir: dir, Reserve: -1}) // also before anything was recovered
		}
		s := draftStore(t, dir, nil)
		for k := range draftKeys {
			key := fmt.Sprint(k)
			_, got, err := storetest.Read(t.Context(), s, object.Ref{Bucket: "b", Key: key})
			last, ok := acked[key]
			switch {
			case err == nil && ok && bytes.Equal(got, draftContent(last)):
			case err == nil && started%draftKeys == k && bytes.Equal(got, draftContent(started)):
				acked[key] = started
			case errors.Is(err, object.ErrNoSuchKey) && !ok:
			default:
				t.Fatalf("%s: key %s has %d bytes, %v; acknowledged %d, begun %d", where, key, len(got), err, last, started)
			}
		}
		tidy(t, s, dir, where)
		next = started + 1
	}
	if len(acked) < draftKeys {
		t.Fatalf("only %d keys were ever written", len(acked))
	}
}

// killDrafts starts the child and kills it after so many lines. It returns the last draft that was begun, and notes
// those that were acknowledged.
func killDrafts(t *testing.T, dir string, first, lines int, acked map[string]int) int {
	t.Helper()
	cmd, r := startChild(t, "TestDraftChild", "NEBULAIO_DRAFT_DIR="+dir, fmt.Sprintf("NEBULAIO_DRAFT_FIRST=%d", first))
	defer r.Close()
	started, n := first-1, 0
	for in := bufio.NewScanner(r); in.Scan(); {
		var what string
		var i int
		if _, err := fmt.Sscanf(in.Text(), "%s %d", &what, &i); err != nil {
			t.Fatalf("the child said %q: %v", in.Text(), err)
		}
		if started = max(started, i); what == "A" {
			acked[fmt.Sprint(i%draftKeys)] = i
		}
		if n++; n == lines {
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); err == nil || n < lines {
		t.Fatalf("the child ended by itself after %d lines: %v", n, err)
	}
	return started
}
