// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/internal/node"
)

func TestWhatRepairMovesAsideIsListedAndPutBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	p := startServer(t, dir, nil)
	c := p.client(p.AccessKey, p.SecretKey)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	put(t, c, "bucket", "large", pattern(3<<20))
	at := func(args ...string) []string { return append(args, "--data", dir) }
	run(t, at("store", "quarantine", "restore", "x")).want(t, 2, "has this store open")
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}
	run(t, at("store", "quarantine", "list")).want(t, 0, "the quarantine is empty")
	foreign := filepath.Join(dir, "data", "00", "00", "00000000000000aa")
	if err := os.WriteFile(foreign, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, at("store", "check", "--unreadable")).want(t, 2, "--unreadable is given without --repair")
	run(t, at("store", "check", "--repair")).want(t, 0, "repaired", foreign, "8 bytes that nothing has",
		"moved to quarantine/00000000000000aa", "all of them repaired")
	if _, err := os.Stat(foreign); err == nil {
		t.Error("the file is still there")
	}
	run(t, at("store", "check", "--content")).want(t, 0, "result    clean")
	r := run(t, at("store", "quarantine", "list", "--json"))
	if all := decode[quarantineJSON](t, r).Entries; len(all) != 1 || all[0].Kind != "file" ||
		all[0].Path != "data/00/00/00000000000000aa" || all[0].Why == "" || all[0].When == "" {
		t.Errorf("%+v", all)
	}
	run(t, at("store", "quarantine", "list")).want(t, 0, "was data/00/00/00000000000000aa", "8 bytes that nothing has")
	run(t, at("store", "quarantine", "restore")).want(t, 2, "no name given; expected the name of one entry")
	run(t, at("store", "quarantine", "restore", "../FORMAT")).want(t, 2,
		"expected a name that store quarantine list shows")
	run(t, at("store", "quarantine", "restore", "none")).want(t, 3, "no such thing")
	run(t, at("store", "quarantine", "restore", "00000000000000aa")).want(t, 0, "restored", foreign)
	if b, err := os.ReadFile(foreign); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
	if r := decode[node.CheckReport](t, run(t, at("store", "check", "--repair", "--json"))); r.Found != 1 ||
		!strings.Contains(r.Problems[0].Did, "moved to quarantine/") {
		t.Errorf("%+v", r)
	}
}
