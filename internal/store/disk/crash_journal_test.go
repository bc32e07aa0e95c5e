// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/test/effort"
)

// TestJournalKillChild is the process that TestJournalKills kills. It writes and deletes objects of a journalled
// bucket, and tells on descriptor 3 of each acknowledged change.
func TestJournalKillChild(t *testing.T) {
	dir := os.Getenv("NEBULAIO_CRASH_DIR")
	if dir == "" {
		t.Skip("it is started by TestJournalKills")
	}
	round := effort.Number(t, "NEBULAIO_CRASH_ROUND", 0)
	tell := os.NewFile(3, "pipe")
	s, err := disk.Open(context.Background(), killOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	if round == 0 {
		journalled(t, s, "b", object.VersioningEnabled, object.JournalRule{Consumer: "c"})
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d-%d-%d", round, w, i)
				size := 10
				if i%3 == 0 {
					size = 40 << 10 // in a file
				}
				info, err := putText(context.Background(), s, "b", key, strings.Repeat("x", size))
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(3)
				}
				fmt.Fprintf(tell, "put %s %s\n", key, info.Version)
				if i%4 != 0 {
					continue
				}
				d, err := s.Delete(context.Background(), object.Deletion{Ref: object.Ref{Bucket: "b", Key: key}})
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(3)
				}
				fmt.Fprintf(tell, "marker %s %s\n", key, d.Version)
			}
		})
	}
	wg.Wait()
}

// TestJournalKills kills a process with kill -9 while it changes a journalled bucket. Every acknowledged change has its
// entry, and every entry has its version.
func TestJournalKills(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	for round := range (effort.Rounds{Test: 2, CI: 6}).Of(t) {
		cmd, r := startChild(t, "TestJournalKillChild", "NEBULAIO_CRASH_DIR="+dir,
			fmt.Sprintf("NEBULAIO_CRASH_ROUND=%d", round))
		var acked []string
		lines := 20 + round*37
		for in := bufio.NewScanner(r); in.Scan(); {
			acked = append(acked, in.Text())
			if len(acked) == lines {
				_ = cmd.Process.Kill()
			}
		}
		_ = r.Close()
		if err := cmd.Wait(); err == nil || len(acked) < lines {
			t.Fatalf("round %d: the child ended by itself after %d lines: %v", round, len(acked), err)
		}
		s, err := disk.Open(t.Context(), killOptions(dir))
		if err != nil {
			t.Fatal(err)
		}
		entries := must[[]object.JournalEntry](t)(s.ReadJournal(t.Context(), "c", 0, 1<<30))
		has := map[string]bool{}
		for _, e := range entries {
			line := fmt.Sprintf("%s %s %s", e.Kind, e.Key, e.Version)
			if has[line] {
				t.Errorf("round %d: %q twice", round, line)
			}
			has[line] = true
			info, err := s.Stat(t.Context(), object.Ref{Bucket: "b", Key: e.Key, Version: e.Version})
			if err != nil || info.Marker != e.Marker || info.Size != e.Size {
				t.Errorf("round %d: entry %+v without its version: %+v, %v", round, e, info, err)
			}
		}
		for _, line := range acked {
			if !has[line] {
				t.Errorf("round %d: %q was acknowledged and has no entry", round, line)
			}
		}
		versions := 0
		for l := (object.List{Bucket: "b", Versions: true}); ; {
			page, err := s.List(t.Context(), l)
			if err != nil {
				t.Fatal(err)
			}
			for i := range page.Objects {
				if strings.HasPrefix(page.Objects[i].Key, fmt.Sprintf("%d-", round)) {
					versions++
				}
			}
			if !page.Truncated {
				break
			}
			l.After, l.AfterVersion = page.Next, page.NextVersion
		}
		if versions != len(entries) {
			t.Errorf("round %d: %d versions and %d entries", round, versions, len(entries))
		}
		if len(entries) > 0 {
			if err := s.AckJournal(t.Context(), "c", entries[len(entries)-1].Seq); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wantClean(t, killOptions(dir))
	}
}
