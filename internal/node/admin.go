// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// Admin administers a store: through the server that runs on it, or by holding
// it open itself. Both answer alike.
type Admin interface {
	// Users lists the accounts without their secrets; root is none of them.
	Users(ctx context.Context) ([]User, error)
	// AddUser makes an account; iam.ErrAccountExists.
	AddUser(ctx context.Context, a iam.Account) error
	// UpdateUser changes an account; iam.ErrNoSuchAccount.
	UpdateUser(ctx context.Context, accessKey string, c iam.Change) error
	// RemoveUser removes an account and what Grant allowed it; iam.ErrNoSuchAccount. Its buckets stay.
	RemoveUser(ctx context.Context, accessKey string) error
	// Grant allows an account something in a bucket, and reports whether anything changed; iam.ErrNoSuchAccount,
	// object.ErrNoSuchBucket.
	Grant(ctx context.Context, g iam.Grant) (changed bool, err error)
	// Revoke takes back what Grant allowed: of one prefix where that is given. It reports whether anything changed. The
	// account need not exist; object.ErrNoSuchBucket.
	Revoke(ctx context.Context, bucket, accessKey string, prefix *string) (changed bool, err error)
	// Access tells what an account may use; iam.ErrNoSuchAccount.
	Access(ctx context.Context, accessKey string) (UserAccess, error)
	// Stats says what the store holds.
	Stats(ctx context.Context) (Stats, error)
	// Scrub reads all content at up to rate bytes a second (0: without limit) and checks it. Progress, where
	// given, is called now and then from one goroutine. One scrub runs at a time.
	Scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error)
	// Backup copies the store as it is now to a directory that does not exist, on the machine of the store. Verify compares
	// all copied content with its checksums. Progress, where given, is called now and then from one goroutine.
	Backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport, error)
	// Door tells how the GPUDirect door stands.
	Door(ctx context.Context) (Door, error)
	// Running says whether a server runs on the store.
	Running() bool
	// Close lets go of the store, or of the connection.
	Close() error
}

// User is an account as lists show it.
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
