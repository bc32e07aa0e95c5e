// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// QuotaTarget names a bucket or a user. Exactly one field is set.
type QuotaTarget struct {
	Bucket string `json:"bucket,omitempty"`
	User   string `json:"user,omitempty"` // access key of the user; the quota limits all buckets that the user owns
}

func (t QuotaTarget) name() string { return t.Bucket + t.User }

// QuotaState is a quota and what counts against it.
type QuotaState struct {
	QuotaTarget
	Quota object.Quota `json:"quota"`
	Used  object.Usage `json:"used"`
}

// QuotaChange sets a quota. If Quota is nil, the quota is removed.
type QuotaChange struct {
	QuotaTarget
	Quota *object.Quota `json:"quota,omitempty"`
}

// Quotas returns all quotas: those of buckets, then those of users, each by name.
func (a *DataAdmin) Quotas(ctx context.Context) ([]QuotaState, error) {
	if a.remote != nil {
		var all []QuotaState
		return all, a.remote.call(ctx, http.MethodGet, "/v1/quotas", nil, &all)
	}
	buckets, err := a.store.ListBuckets(ctx)
	if err != nil {
		return nil, err
	}
	all := []QuotaState{}
	for i := range buckets {
		q, err := object.QuotaOf(&buckets[i])
		if err != nil {
			return nil, err
		}
		if q == nil {
			continue
		}
		used, err := a.store.BucketUsage(ctx, buckets[i].Name)
		if err != nil {
			return nil, err
		}
		all = append(all, QuotaState{QuotaTarget: QuotaTarget{Bucket: buckets[i].Name}, Quota: *q, Used: used})
	}
	owners, err := a.store.OwnerQuotas(ctx)
	if err != nil {
		return nil, err
	}
	first := len(all)
	for owner, q := range owners {
		used, err := a.store.OwnerUsage(ctx, owner)
		if err != nil {
			return nil, err
		}
		all = append(all, QuotaState{QuotaTarget: QuotaTarget{User: owner}, Quota: q, Used: used})
	}
	slices.SortFunc(all[first:], func(x, y QuotaState) int { return cmp.Compare(x.User, y.User) })
	return all, nil
}

// SetQuota sets or removes a quota. A quota that is smaller than what is there already refuses all growth. SetQuota
// fails with object.ErrNoSuchBucket if the bucket does not exist. The user need not exist yet.
func (a *DataAdmin) SetQuota(ctx context.Context, c QuotaChange) (QuotaState, error) {
	const op = "set the quota"
	state := QuotaState{QuotaTarget: c.QuotaTarget}
	if (c.Bucket == "") == (c.User == "") {
		return state, errs.New(errs.Invalid, op, c.name(), "expected either a bucket or a user")
	}
	if c.Quota != nil {
		if err := c.Quota.Check(op, c.name()); err != nil {
			return state, err
		}
		state.Quota = *c.Quota
	}
	if a.remote != nil {
		return state, a.remote.call(ctx, http.MethodPost, "/v1/quotas", c, &state)
	}
	var err error
	if c.User != "" {
		if err = a.store.SetOwnerQuota(ctx, c.User, c.Quota); err == nil {
			state.Used, err = a.store.OwnerUsage(ctx, c.User)
		}
		return state, err
	}
	if err = a.limitBucket(ctx, c.Bucket, c.Quota); err == nil {
		state.Used, err = a.store.BucketUsage(ctx, c.Bucket)
	}
	return state, err
}

// limitBucket sets or removes the quota of a bucket.
func (a *DataAdmin) limitBucket(ctx context.Context, bucket string, q *object.Quota) error {
	return a.store.UpdateBucket(ctx, bucket, func(b *object.Bucket) error {
		if b.OnUpstream() {
			return errs.New(errs.Unsupported, "set the quota", bucket, "another S3 server keeps the objects of the bucket").
				WithFix("set the quota on that server")
		}
		if q == nil {
			delete(b.Settings, object.SettingQuota)
			return nil
		}
		doc, err := json.Marshal(q)
		if err != nil {
			return errs.Wrap("set the quota", bucket, err)
		}
		if b.Settings == nil {
			b.Settings = map[string][]byte{}
		}
		b.Settings[object.SettingQuota] = doc
		return nil
	})
}

// addQuotas serves quotas over the administration socket.
func (a *DataAdmin) addQuotas(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/quotas", func(w http.ResponseWriter, r *http.Request) {
		all, err := a.Quotas(r.Context())
		answer(w, all, err)
	})
	mux.HandleFunc("POST /v1/quotas", answering(a.SetQuota))
}
