// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// Admin administers a store, either through the server that runs on the store or by opening the store itself. The
// results of an Admin are the same with and without a running server.
type Admin interface {
	EncryptionKeys
	Identities
	// Users lists the accounts except root, without their secrets.
	Users(ctx context.Context) ([]User, error)
	// AddUser adds an account. AddUser fails with iam.ErrAccountExists if the access key is in use.
	AddUser(ctx context.Context, a iam.Account) error
	// UpdateUser changes the secret or the role of an account. UpdateUser fails with iam.ErrNoSuchAccount if the
	// account does not exist.
	UpdateUser(ctx context.Context, accessKey string, c iam.Change) error
	// RemoveUser removes an account and its grants, but not its buckets. RemoveUser fails with iam.ErrNoSuchAccount
	// if the account does not exist.
	RemoveUser(ctx context.Context, accessKey string) error
	// Grant gives an account access to a bucket, and reports whether the bucket's policy changed. Grant fails with
	// iam.ErrNoSuchAccount or object.ErrNoSuchBucket if the account or the bucket does not exist.
	Grant(ctx context.Context, g iam.Grant) (changed bool, err error)
	// Revoke removes the grants of an account in a bucket, and reports whether the bucket's policy changed. If prefix
	// is not nil, Revoke removes only the grant for that prefix. Revoke also removes the grants of an account that
	// does not exist any more. Revoke fails with object.ErrNoSuchBucket if the bucket does not exist.
	Revoke(ctx context.Context, bucket, accessKey string, prefix *string) (changed bool, err error)
	// Access returns the buckets that an account can use. Access fails with iam.ErrNoSuchAccount if the account
	// does not exist.
	Access(ctx context.Context, accessKey string) (UserAccess, error)
	// Stats returns the statistics of the store.
	Stats(ctx context.Context) (Stats, error)
	// Scrub reads the content of all objects and compares it with its checksums. The parameter rate is the largest
	// number of bytes to read per second; 0 means no limit. If progress is not nil, Scrub calls it from time to time
	// from one goroutine. Scrub fails with kind Invalid if another scrub of the store is running.
	Scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error)
	// Backup copies the current state of the store to a new directory on the store's machine. If verify is true,
	// Backup compares all copied content with its checksums. If progress is not nil, Backup calls it from time to
	// time from one goroutine.
	Backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport, error)
	// Door returns the state of the GPUDirect door.
	Door(ctx context.Context) (Door, error)
	// Running reports whether a server runs on the store.
	Running() bool
	// Close closes the store that the Admin has opened, or the connection to the server.
	Close() error
}

// User describes an account without its secret key.
type User struct {
	AccessKey string   `json:"access_key"`
	Role      iam.Role `json:"role"`
}

// local administers a store that this process holds open.
type local struct {
	localIdentities
	store    store
	accounts *iam.Service
	door     func() Door
	scrub    *sync.Mutex // held during a scrub: only one scrub runs at a time
	granting sync.Mutex  // held by Grant and RemoveUser, so that no grant outlives its account
	close    func() error
}

// Users implements Admin.
func (l *local) Users(context.Context) ([]User, error) {
	users := []User{}
	for _, a := range l.accounts.List() {
		users = append(users, User{AccessKey: a.AccessKey, Role: a.Role})
	}
	return users, nil
}

// AddUser implements Admin.
func (l *local) AddUser(ctx context.Context, a iam.Account) error { return l.accounts.Add(ctx, a) }

// UpdateUser implements Admin.
func (l *local) UpdateUser(ctx context.Context, accessKey string, c iam.Change) error {
	return l.accounts.Update(ctx, accessKey, c)
}

// Stats implements Admin.
func (l *local) Stats(ctx context.Context) (Stats, error) { return l.store.stats(ctx) }

// Scrub implements Admin. If another scrub of the store is running, Scrub fails at once.
func (l *local) Scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error) {
	if !l.scrub.TryLock() {
		return ScrubReport{}, errs.New(errs.Invalid, "scrub", "",
			"a scrub of this store is running").WithFix("wait for it: its result is in the server's log")
	}
	defer l.scrub.Unlock()
	return l.store.scrub(ctx, rate, progress)
}

// Backup implements Admin.
func (l *local) Backup(ctx context.Context, to string, verify bool, progress func(BackupReport)) (BackupReport, error) {
	return l.store.backup(ctx, to, verify, progress)
}

// Door implements Admin.
func (l *local) Door(context.Context) (Door, error) { return l.door(), nil }

// Running returns false, because this process has opened the store itself.
func (l *local) Running() bool { return false }

// Close closes the store, if this Admin has opened it.
func (l *local) Close() error { return l.close() }
