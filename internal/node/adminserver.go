// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// maxAdminBody is the largest request body in bytes that the administration socket reads.
const maxAdminBody = 64 << 10

// problem is an errs.Error as JSON.
type problem struct {
	Kind    errs.Kind `json:"kind"`
	Message string    `json:"message"`
	Fix     string    `json:"fix,omitempty"`
}

// newProblem converts an error to JSON. The fix is a field of its own.
func newProblem(err error) *problem {
	// MessageOf leaves out the fixes of all wrapped errors.
	return &problem{Kind: errs.KindOf(err), Message: errs.MessageOf(err), Fix: errs.FixOf(err)}
}

func (p *problem) err() error { return &errs.Error{Kind: p.Kind, Msg: p.Message, Fix: p.Fix} }

// userChange is the request body of UpdateUser.
type userChange struct {
	Secret *string   `json:"secret,omitempty"`
	Role   *iam.Role `json:"role,omitempty"`
}

// adminHandler serves an Admin over the administration socket. The listener decides which users may connect. The
// function members describes the cluster of the server. The parameter k administers the cache, and is nil if the server
// has no upstream bucket.
func adminHandler(a Admin, members func() Cluster, k *CacheAdmin) http.Handler {
	mux := http.NewServeMux()
	addCache(mux, k)
	mux.HandleFunc("GET /v1/users", func(w http.ResponseWriter, r *http.Request) {
		users, err := a.Users(r.Context())
		answer(w, users, err)
	})
	mux.HandleFunc("POST /v1/users", func(w http.ResponseWriter, r *http.Request) {
		var account iam.Account
		if err := decodeBody(w, r, &account); err != nil {
			answer(w, nil, err)
			return
		}
		answer(w, struct{}{}, a.AddUser(r.Context(), account))
	})
	mux.HandleFunc("PATCH /v1/users/{key}", func(w http.ResponseWriter, r *http.Request) {
		var c userChange
		if err := decodeBody(w, r, &c); err != nil {
			answer(w, nil, err)
			return
		}
		answer(w, struct{}{}, a.UpdateUser(r.Context(), r.PathValue("key"), iam.Change{Secret: c.Secret, Role: c.Role}))
	})
	mux.HandleFunc("DELETE /v1/users/{key}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, a.RemoveUser(r.Context(), r.PathValue("key")))
	})
	addGrants(mux, a)
	addIdentities(mux, a)
	addCluster(mux, members)
	addEncryptionKeys(mux, a)
	mux.HandleFunc("GET /v1/stats", func(w http.ResponseWriter, r *http.Request) {
		s, err := a.Stats(r.Context())
		answer(w, s, err)
	})
	mux.HandleFunc("GET /v1/gpudirect", func(w http.ResponseWriter, r *http.Request) {
		d, err := a.Door(r.Context())
		answer(w, d, err)
	})
	mux.HandleFunc("POST /v1/scrub", func(w http.ResponseWriter, r *http.Request) { serveScrub(a, w, r) })
	mux.HandleFunc("POST /v1/backup", func(w http.ResponseWriter, r *http.Request) { serveBackup(a, w, r) })
	return mux
}

func serveScrub(a Admin, w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Rate int64 `json:"rate"`
	}
	if err := decodeBody(w, r, &ask); err != nil {
		answer(w, nil, err)
		return
	}
	stream(w, func(progress func(ScrubProgress)) (ScrubReport, error) {
		return a.Scrub(r.Context(), ask.Rate, progress)
	})
}

func decodeBody(w http.ResponseWriter, r *http.Request, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAdminBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return errs.New(errs.Invalid, "read the request", r.URL.Path, err.Error())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errs.New(errs.Invalid, "read the request", r.URL.Path, "has more than one JSON value")
	}
	return nil
}

// answer writes v, or the error with a status that fits it.
func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := http.StatusInternalServerError
		switch errs.KindOf(err) {
		case errs.Invalid:
			status = http.StatusBadRequest
		case errs.NotFound:
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		v = struct {
			Error *problem `json:"error"`
		}{newProblem(err)}
	}
	_ = json.NewEncoder(w).Encode(v) // a client that disconnected needs no reply
}
