// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// fakeAdmin answers with what it was given.
type fakeAdmin struct {
	Admin   // nil: what is not below is not asked
	users   []User
	added   iam.Account
	changed iam.Change
	stats   Stats
	report  ScrubReport
	err     error
}

func (f *fakeAdmin) Users(context.Context) ([]User, error) { return f.users, f.err }
func (f *fakeAdmin) AddUser(_ context.Context, a iam.Account) error {
	f.added = a
	return f.err
}
func (f *fakeAdmin) UpdateUser(_ context.Context, name string, c iam.Change) error {
	f.changed = c
	f.added.AccessKey = name
	return f.err
}
func (f *fakeAdmin) RemoveUser(_ context.Context, name string) error {
	f.added.AccessKey = name
	return f.err
}
func (f *fakeAdmin) Door(context.Context) (Door, error) {
	return Door{Served: true, Socket: "/run/door.sock"}, nil
}

func (f *fakeAdmin) Stats(context.Context) (Stats, error) { return f.stats, f.err }
func (f *fakeAdmin) Scrub(_ context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error) {
	progress(ScrubProgress{Done: rate, Total: 2 * rate})
	return f.report, f.err
}
func (f *fakeAdmin) Backup(_ context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport,
	error) {
	progress(BackupReport{Files: 1})
	return BackupReport{Files: int64(len(to)), Bytes: 7}, f.err
}
func (f *fakeAdmin) Running() bool { return false }
func (f *fakeAdmin) Close() error  { return nil }

// serveFake serves an Admin on the socket of a directory.
func serveFake(t *testing.T, dir string, a Admin) *remote {
	t.Helper()
	l, err := listenAdmin(dir)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: adminHandler(a, func() Cluster { return Cluster{Reason: "test"} }, nil)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	r := newRemote(dir)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestTheSocketCarriesEveryCallAndEveryError(t *testing.T) {
	f := &fakeAdmin{users: []User{{"alice", iam.RoleUser}}, stats: Stats{Objects: 7}}
	r := serveFake(t, t.TempDir(), f)
	ctx := t.Context()

	if users, err := r.Users(ctx); err != nil || len(users) != 1 || users[0] != f.users[0] {
		t.Errorf("%v, %v", users, err)
	}
	if err := r.AddUser(ctx, iam.Account{AccessKey: "bob", Secret: "very secret", Role: iam.RoleAdmin}); err != nil ||
		f.added.AccessKey != "bob" || f.added.Secret != "very secret" || f.added.Role != iam.RoleAdmin {
		t.Errorf("%+v, %v", f.added, err)
	}
	role := iam.RoleUserPlus
	if err := r.UpdateUser(ctx, "a@b+c", iam.Change{Role: &role}); err != nil || f.added.AccessKey != "a@b+c" ||
		f.changed.Secret != nil || *f.changed.Role != role {
		t.Errorf("%+v, %v", f.changed, err)
	}
	if err := r.RemoveUser(ctx, "carol"); err != nil || f.added.AccessKey != "carol" {
		t.Errorf("%q, %v", f.added.AccessKey, err)
	}
	if s, err := r.Stats(ctx); err != nil || s.Objects != 7 {
		t.Errorf("%+v, %v", s, err)
	}
	var seen []ScrubProgress
	if _, err := r.Scrub(ctx, 5, func(p ScrubProgress) { seen = append(seen, p) }); err != nil || len(seen) != 1 ||
		seen[0].Total != 10 {
		t.Errorf("%v, %v", seen, err)
	}

	f.err = errs.New(errs.NotFound, "get account", "dave", "no such account").WithFix("look again")
	for name, call := range map[string]func() error{
		"users":  func() error { _, err := r.Users(ctx); return err },
		"remove": func() error { return r.RemoveUser(ctx, "dave") },
		"stats":  func() error { _, err := r.Stats(ctx); return err },
		"scrub":  func() error { _, err := r.Scrub(ctx, 1, nil); return err },
	} {
		if err := call(); !errs.Is(err, errs.NotFound) || errs.FixOf(err) != "look again" ||
			strings.Count(err.Error(), "look again") != 1 || !strings.Contains(err.Error(), "dave") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheSocketRefusesWhatItDoesNotKnow(t *testing.T) {
	r := serveFake(t, t.TempDir(), &fakeAdmin{})
	for _, body := range []string{"", "{", `{"access_key":"a"} {}`, `{"nope":1}`, `{"secret":"` +
		strings.Repeat("x", maxAdminBody) + `"}`} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://nebulaio/v1/users",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			Error *problem `json:"error"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Error == nil || p.Error.Kind != errs.Invalid ||
			resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%.20q: %s %+v %v", body, resp.Status, p.Error, err)
		}
		_ = resp.Body.Close()
	}
}

func TestASocketOfADeepDirectoryAndAfterACrash(t *testing.T) {
	dir := t.TempDir()
	for len(dir) < 200 {
		dir = filepath.Join(dir, strings.Repeat("d", 40))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// What a killed server leaves.
	if err := os.WriteFile(filepath.Join(dir, adminSocket), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := listenAdmin(dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, adminSocket))
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	got := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.WriteString(c, "x")
			_ = c.Close()
		}
		got <- err
	}()
	c, err := dialAdmin(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, adminSocket)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if _, err := dialAdmin(t.Context(), dir); err == nil {
		t.Error("a closed socket was reached")
	}
}

func TestThePeerIsKnown(t *testing.T) {
	l, err := listenAdmin(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if uid, err := userOf(client.(*net.UnixConn)); err != nil || uid != uint32(os.Geteuid()) {
		t.Errorf("%d, %v", uid, err)
	}
}
