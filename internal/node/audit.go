// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/audit"
	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api"
)

// auditor writes the audit log. A nil auditor writes nothing.
type auditor struct {
	log    *audit.Log
	sender *audit.Sender // nil if there is no webhook
	tell   func(error)   // reports that a line could not be written
	lines  atomic.Int64
	lost   atomic.Int64 // lines that could not be written, whose requests were refused
}

// openAudit opens the audit log of the configuration, or returns nil if there is none.
func openAudit(s *server) (*auditor, error) {
	c := s.Config.Audit
	if !c.Enabled() {
		return nil, nil
	}
	path := c.File
	if path == "" {
		path = filepath.Join(s.Config.Data, "audit", "audit.log")
	}
	log := component(s.log, "audit")
	l, err := audit.Open(audit.Options{Path: path, MaxSize: c.MaxSize, Keep: c.Keep, Dropped: func(path string) {
		log.Error("a file of the audit log was removed before its lines were sent", "file", path, "fix",
			"raise audit.keep, or mend the receiver of audit.webhook")
	}})
	if err != nil {
		return nil, err
	}
	a := &auditor{log: l, tell: func(err error) {
		log.Error("a request was refused because the audit log cannot be written", "error", err)
	}}
	if c.Webhook == "" {
		return a, nil
	}
	w := audit.Webhook{URL: c.Webhook, Failed: func(err error) {
		log.Warn("lines of the audit log could not be sent, they are sent again", "error", err)
	}}
	w.Token = os.Getenv(c.WebhookTokenEnv) // Validate has found it
	if a.sender, err = audit.NewSender(l, w); err != nil {
		_ = l.Close()
		return nil, err
	}
	return a, nil
}

// run sends lines to the webhook until ctx ends.
func (a *auditor) run(ctx context.Context) {
	if a != nil && a.sender != nil {
		a.sender.Run(ctx)
	}
}

func (a *auditor) close() error {
	if a == nil {
		return nil
	}
	return a.log.Close()
}

// write writes one record, and reports a failure.
func (a *auditor) write(r *audit.Record) error {
	line, err := r.Encode()
	if err == nil {
		err = a.log.Write(line)
	}
	if err != nil {
		a.lost.Add(1)
		a.tell(err)
		return err
	}
	a.lines.Add(1)
	return nil
}

// s3 returns the function that the S3 front end calls before each reply, or nil if there is no audit log.
func (a *auditor) s3() func(*s3api.Event) error {
	if a == nil {
		return nil
	}
	return func(e *s3api.Event) error {
		r := audit.Record{Time: e.Time.UTC(), Source: "s3", RequestID: e.RequestID, Operation: e.Operation, Method: e.Method,
			Bucket: e.Bucket, Key: e.Key, Status: e.Status, Code: e.Code, BytesIn: e.In, BytesOut: e.Out,
			Millis: float64(e.Duration.Microseconds()) / 1e3, Account: e.Account, Remote: e.Remote}
		if h := e.HTTP; h != nil {
			r.HostID, r.Agent, r.VersionID = h.HostID, h.Agent, h.VersionID
		}
		return a.write(&r)
	}
}

// door returns an Authorizer that records each decision at the door, or the same Authorizer if there is no audit log. A
// decision that cannot be recorded is a refusal.
func (a *auditor) door(under object.Authorizer) object.Authorizer {
	if a == nil {
		return under
	}
	return auditedDoor{under, a}
}

type auditedDoor struct {
	object.Authorizer
	a *auditor
}

// Authorize implements object.Authorizer.
func (d auditedDoor) Authorize(ctx context.Context, access object.Access) error {
	began := time.Now()
	err := d.Authorizer.Authorize(ctx, access)
	r := audit.Record{Time: began.UTC(), Source: "door", Operation: strings.TrimPrefix(string(access.Action), "s3:"),
		Bucket: access.Bucket, Key: access.Key, VersionID: access.Version, Account: access.Account}
	if err != nil {
		r.Code = "AccessDenied"
		if errors.Is(err, object.ErrNoSuchBucket) {
			r.Code = "NoSuchBucket"
		}
	}
	if e := d.a.write(&r); e != nil && err == nil {
		return errs.New(errs.Permission, "authorize", access.Bucket, "the audit log cannot be written")
	}
	return err
}

// admin returns a handler that records each request of the administration socket before its reply.
func (a *auditor) admin(next http.Handler) http.Handler {
	if a == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &auditedReply{ResponseWriter: w, a: a, r: audit.Record{Time: time.Now().UTC(), Source: "admin",
			Operation: r.URL.Path, Method: r.Method, Agent: r.UserAgent(), BytesIn: max(r.ContentLength, 0)}}
		next.ServeHTTP(out, r)
		if !out.begun {
			out.WriteHeader(http.StatusOK)
		}
	})
}

// auditedReply writes a record when its reply begins.
type auditedReply struct {
	http.ResponseWriter
	a      *auditor
	r      audit.Record
	begun  bool
	denied bool
}

// WriteHeader implements http.ResponseWriter.
func (w *auditedReply) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun = true
	w.r.Status = status
	w.r.Millis = float64(time.Since(w.r.Time).Microseconds()) / 1e3
	if err := w.a.write(&w.r); err != nil {
		w.denied = true
		answer(w.ResponseWriter, nil, errs.New(errs.IO, "answer", w.r.Operation, "the audit log cannot be written"))
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *auditedReply) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.denied {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the connection's own methods.
func (w *auditedReply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// auditTokens returns an error if the environment lacks a secret of the audit log.
func auditTokens(c *config.Config) error {
	if name := c.Audit.WebhookTokenEnv; name != "" && c.Audit.Webhook != "" && os.Getenv(name) == "" {
		return errs.New(errs.Invalid, "read configuration", "audit.webhook_token_env",
			"the environment variable "+name+" is not set").WithFix("set it to the Authorization header of the webhook")
	}
	return nil
}
