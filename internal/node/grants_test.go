// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// adminOf opens the administration of a new store with one bucket.
func adminOf(t *testing.T, bucket string) *local {
	t.Helper()
	st, err := openStore(t.Context(), settings(t, map[string]string{"data": filepath.Join(t.TempDir(), "store")}),
		events{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	accounts, err := iam.Open(t.Context(), st, iam.Account{AccessKey: "administrator", Secret: "long-enough",
		Role: iam.RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	l := &local{store: st, accounts: accounts}
	if err := l.store.CreateBucket(t.Context(), object.Bucket{Name: bucket, Owner: "somebody"}); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestNoGrantOutlivesItsAccount grants while the account is removed. Whoever comes first, an account that is made later
// with the same access key finds nothing.
func TestNoGrantOutlivesItsAccount(t *testing.T) {
	l := adminOf(t, "models")
	for i := range 50 {
		name := fmt.Sprintf("user%d", i)
		if err := l.AddUser(t.Context(), iam.Account{AccessKey: name, Secret: "long-enough",
			Role: iam.RoleUser}); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := l.Grant(t.Context(), iam.Grant{User: name, Bucket: "models", Access: iam.AccessRead}); err != nil &&
				!errs.Is(err, errs.NotFound) {
				t.Error(err)
			}
		})
		both.Go(func() {
			if err := l.RemoveUser(t.Context(), name); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		bk, err := l.store.Bucket(t.Context(), "models")
		if err != nil {
			t.Fatal(err)
		}
		if grants, _ := policy.Grants(bk, name); len(grants) > 0 {
			t.Fatalf("%s is removed, and has %v", name, grants)
		}
	}
}

// TestProblemsNameTheirFixOnce sends an error through the administration socket whose fix is that of its cause.
func TestProblemsNameTheirFixOnce(t *testing.T) {
	p := newProblem(errs.Wrap("change the policy of", "models",
		errs.New(errs.Invalid, "", "", "somebody has changed it").WithFix("put it back")))
	if strings.Contains(p.Message, "put it back") || p.Fix != "put it back" || p.Kind != errs.Invalid {
		t.Errorf("%+v", p)
	}
}
