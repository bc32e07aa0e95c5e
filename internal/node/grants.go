// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// UserAccess lists the buckets that an account may use.
type UserAccess struct {
	User
	Groups   []string    `json:"groups"`   // groups of the account
	Attached []string    `json:"attached"` // policies that are attached to the account itself
	Owns     []string    `json:"owns"`     // buckets that the account owns
	Grants   []iam.Grant `json:"grants"`   // grants to the account that Admin.Grant has added to the policies of buckets
	// Policies lists the buckets whose policies name the account or everybody in statements that are not grants.
	Policies []string `json:"policies"`
}

// Grant implements Admin. Grant changes the policy of the bucket in one atomic step, during which the account
// cannot be removed.
func (l *local) Grant(ctx context.Context, g iam.Grant) (changed bool, err error) {
	l.granting.Lock()
	defer l.granting.Unlock()
	if g.User == l.accounts.Root().AccessKey {
		return false, errs.New(errs.Invalid, "grant access to", g.User,
			"this is the administrator, who may do everything already")
	}
	if _, err := l.accounts.User(g.User); err != nil {
		return false, &errs.Error{Kind: errs.KindOf(err), Op: "grant access to", Name: g.User, Err: err,
			Fix: "list the accounts with nebulaio user list, or make this one with nebulaio user add"}
	}
	err = l.store.UpdateBucket(ctx, g.Bucket, func(bk *object.Bucket) error {
		changed, err = policy.AddGrant(bk, g, l.accounts.Root().AccessKey)
		return unchanged(changed, err)
	})
	return changed, settled(g.Bucket, err)
}

// Revoke implements Admin. Revoke changes the policy of the bucket in one atomic step.
func (l *local) Revoke(ctx context.Context, bucket, accessKey string, prefix *string) (changed bool, err error) {
	err = l.store.UpdateBucket(ctx, bucket, func(bk *object.Bucket) error {
		changed, err = policy.RemoveGrants(bk, accessKey, prefix, l.accounts.Root().AccessKey)
		return unchanged(changed, err)
	})
	return changed, settled(bucket, err)
}

// errUnchanged ends an update that would not change the bucket.
var errUnchanged = errors.New("nothing to change")

func unchanged(changed bool, err error) error {
	if err == nil && !changed {
		return errUnchanged
	}
	return err
}

func settled(bucket string, err error) error {
	switch {
	case errors.Is(err, errUnchanged):
		return nil
	case errors.Is(err, object.ErrNoSuchBucket):
		return &errs.Error{Kind: errs.NotFound, Op: "change the policy of", Name: bucket, Err: err,
			Fix: "make the bucket first: aws s3 mb s3://" + bucket}
	}
	return err
}

// Access implements Admin. Access reads the policy of every bucket, so its duration grows with the number of buckets.
func (l *local) Access(ctx context.Context, accessKey string) (UserAccess, error) {
	account, err := l.accounts.User(accessKey)
	if err != nil {
		return UserAccess{}, &errs.Error{Kind: errs.KindOf(err), Op: "show", Name: accessKey, Err: err,
			Fix: "list the accounts with nebulaio user list"}
	}
	a := UserAccess{User: User{AccessKey: account.AccessKey, Role: account.Role},
		Groups: append([]string{}, account.Groups...), Attached: append([]string{}, account.Policies...), Owns: []string{},
		Grants:   []iam.Grant{},
		Policies: []string{}}
	buckets, err := l.store.ListBuckets(ctx)
	if err != nil {
		return UserAccess{}, err
	}
	for i := range buckets {
		bk := &buckets[i]
		if bk.Owner == accessKey {
			a.Owns = append(a.Owns, bk.Name)
		}
		grants, others := policy.Grants(bk, accessKey)
		a.Grants = append(a.Grants, grants...)
		if others > 0 {
			a.Policies = append(a.Policies, bk.Name)
		}
	}
	return a, nil
}

// RemoveUser implements Admin. RemoveUser removes the account's grants first, so that a later account with the same
// access key does not inherit them. The account is removed even if a bucket's policy cannot be changed.
func (l *local) RemoveUser(ctx context.Context, accessKey string) error {
	l.granting.Lock()
	defer l.granting.Unlock()
	if _, err := l.accounts.User(accessKey); err == nil && accessKey != l.accounts.Root().AccessKey {
		buckets, err := l.store.ListBuckets(ctx)
		if err != nil {
			return err
		}
		for i := range buckets {
			if _, err := l.Revoke(ctx, buckets[i].Name, accessKey, nil); err != nil && !errs.Is(err, errs.Invalid) &&
				!errs.Is(err, errs.NotFound) {
				return err
			}
		}
	}
	return l.accounts.Remove(ctx, accessKey)
}

// grantChange is the reply to a change of grants.
type grantChange struct {
	Changed bool `json:"changed"`
}

// revocation is the request body of a Revoke.
type revocation struct {
	Bucket string  `json:"bucket"`
	User   string  `json:"user"`
	Prefix *string `json:"prefix,omitempty"`
}

// addGrants serves the grants of an Admin.
func addGrants(mux *http.ServeMux, a Admin) {
	mux.HandleFunc("POST /v1/grants", func(w http.ResponseWriter, r *http.Request) {
		var g iam.Grant
		if err := decodeBody(w, r, &g); err != nil {
			answer(w, nil, err)
			return
		}
		changed, err := a.Grant(r.Context(), g)
		answer(w, grantChange{changed}, err)
	})
	mux.HandleFunc("POST /v1/revoke", func(w http.ResponseWriter, r *http.Request) {
		var v revocation
		if err := decodeBody(w, r, &v); err != nil {
			answer(w, nil, err)
			return
		}
		changed, err := a.Revoke(r.Context(), v.Bucket, v.User, v.Prefix)
		answer(w, grantChange{changed}, err)
	})
	mux.HandleFunc("GET /v1/users/{key}/access", func(w http.ResponseWriter, r *http.Request) {
		access, err := a.Access(r.Context(), r.PathValue("key"))
		answer(w, access, err)
	})
}

// Grant implements Admin.
func (r *remote) Grant(ctx context.Context, g iam.Grant) (bool, error) {
	var c grantChange
	err := r.call(ctx, http.MethodPost, "/v1/grants", g, &c)
	return c.Changed, err
}

// Revoke implements Admin.
func (r *remote) Revoke(ctx context.Context, bucket, accessKey string, prefix *string) (bool, error) {
	var c grantChange
	err := r.call(ctx, http.MethodPost, "/v1/revoke", revocation{bucket, accessKey, prefix}, &c)
	return c.Changed, err
}

// Access implements Admin.
func (r *remote) Access(ctx context.Context, accessKey string) (UserAccess, error) {
	var a UserAccess
	err := r.call(ctx, http.MethodGet, "/v1/users/"+url.PathEscape(accessKey)+"/access", nil, &a)
	return a, err
}
