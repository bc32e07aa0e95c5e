// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// Admin administers a store: through the server that runs on it, or by opening the store itself. Both give the same
// answers.
type Admin interface {
	// Users lists the accounts except root, without their secrets.
	Users(ctx context.Context) ([]User, error)
	// AddUser adds an account. It fails with iam.ErrAccountExists.
	AddUser(ctx context.Context, a iam.Account) error
	// UpdateUser changes an account. It fails with iam.ErrNoSuchAccount.
	UpdateUser(ctx context.Context, accessKey string, c iam.Change) error
	// RemoveUser removes an account and its grants. Its buckets stay. It fails with iam.ErrNoSuchAccount.
	RemoveUser(ctx context.Context, accessKey string) error
	// Grant gives an account access to a bucket, and reports whether anything changed. It fails with
	// iam.ErrNoSuchAccount and object.ErrNoSuchBucket.
	Grant(ctx context.Context, g iam.Grant) (changed bool, err error)
	// Revoke takes back the grants of an account in a bucket, and reports whether anything changed. If prefix is given,
	// only its grant goes. The account need not exist. It fails with object.ErrNoSuchBucket.
	Revoke(ctx context.Context, bucket, accessKey string, prefix *string) (changed bool, err error)
	// Access returns the buckets that an account can use. It fails with iam.ErrNoSuchAccount.
	Access(ctx context.Context, accessKey string) (UserAccess, error)
	// Stats returns the numbers of the store.
	Stats(ctx context.Context) (Stats, error)
	// Scrub reads and checks all content, at most rate bytes per second (0: without limit). If progress is not nil, one
	// goroutine calls it now and then. One scrub runs at a time.
	Scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error)
	// Backup copies the store as it is now to a new directory on the machine of the store. With verify it compares all
	// copied content with its checksums. If progress is not nil, one goroutine calls it now and then.
	Backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport, error)
	// Door returns the state of the GPUDirect door.
	Door(ctx context.Context) (Door, error)
	// Running reports whether a server runs on the store.
	Running() bool
	// Close closes the store, or the connection to the server.
	Close() error
}

// User is an account as lists show it, without its secret.
type User struct {
	AccessKey string   `json:"access_key"`
	Role      iam.Role `json:"role"`
}

// local administers a store that this process holds open.
type local struct {
	store    store
	accounts *iam.Service
	door     func() Door
	scrub    *sync.Mutex // one scrub at a time
	granting sync.Mutex  // a grant for an account that is being removed would outlive it
	close    func() error
}

// Users lists the accounts.
func (l *local) Users(context.Context) ([]User, error) {
	users := []User{}
	for _, a := range l.accounts.List() {
		users = append(users, User{AccessKey: a.AccessKey, Role: a.Role})
	}
	return users, nil
}

// AddUser makes an account.
func (l *local) AddUser(ctx context.Context, a iam.Account) error { return l.accounts.Add(ctx, a) }

// UpdateUser changes an account.
func (l *local) UpdateUser(ctx context.Context, accessKey string, c iam.Change) error {
	return l.accounts.Update(ctx, accessKey, c)
}

// Stats asks the store.
func (l *local) Stats(ctx context.Context) (Stats, error) { return l.store.stats(ctx) }

// Scrub lets the store read itself, unless it does so already.
func (l *local) Scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error) {
	if !l.scrub.TryLock() {
		return ScrubReport{}, errs.New(errs.Invalid, "scrub", "",
			"a scrub of this store is running").WithFix("wait for it: its result is in the server's log")
	}
	defer l.scrub.Unlock()
	return l.store.scrub(ctx, rate, progress)
}

// Backup lets the store copy itself.
func (l *local) Backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport, error) {
	return l.store.backup(ctx, to, verify, progress)
}

// Door asks the door.
func (l *local) Door(context.Context) (Door, error) { return l.door(), nil }

// Running is false: the store is held open by this process.
func (l *local) Running() bool { return false }

// Close closes what was opened for this Admin.
func (l *local) Close() error { return l.close() }
