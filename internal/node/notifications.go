// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/accesslog"
	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	sending "github.com/nebulaio/nebulaio/internal/notify"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api"
)

// eventTypes returns the types of the event targets by their names.
func eventTypes(c *config.Config) map[string]string {
	all := map[string]string{}
	for _, name := range c.EventTargets() {
		all[name] = c.EventTarget[name].Type
	}
	return all
}

// eventTargets returns the settings of the event targets with their secrets. It returns an error if the environment
// lacks one of the secrets, or a file cannot be read.
func eventTargets(c *config.Config) ([]sending.Settings, error) {
	var all []sending.Settings
	for _, name := range c.EventTargets() {
		t := c.EventTarget[name]
		s := sending.Settings{Name: name, Type: t.Type, Address: t.Address, Topic: t.Topic, SASL: t.SASL, TLS: t.TLS,
			CAFile: t.CAFile, Timeout: t.Timeout}
		for _, secret := range []struct {
			key, variable string
			to            *string
		}{{"user_env", t.UserEnv, &s.User}, {"token_env", t.TokenEnv, &s.Secret}} {
			if secret.variable == "" {
				continue
			}
			if *secret.to = os.Getenv(secret.variable); *secret.to == "" {
				return nil, errs.New(errs.Invalid, "read configuration", "event_target."+name+"."+secret.key,
					"the environment variable "+secret.variable+" is not set").WithFix("set it, or leave the key out")
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// usableTargets returns an error if an event target cannot be opened. It does not connect to the targets.
func usableTargets(c *config.Config) error {
	all, err := eventTargets(c)
	if err != nil {
		return err
	}
	for _, s := range all {
		t, err := sending.Open(s)
		if err != nil {
			return err
		}
		t.Close()
	}
	return nil
}

// openEvents opens the event targets of the configuration. The caller runs and closes the dispatcher.
func openEvents(ctx context.Context, s *server, journal object.Journal, id string) (*sending.Dispatcher, error) {
	targets, err := eventTargets(s.Config)
	if err != nil {
		return nil, err
	}
	d, err := sending.NewDispatcher(journal, id, s.Config.Region, targets)
	if err != nil {
		return nil, err
	}
	log := component(s.log, "events")
	d.Failed = seldom(time.Minute, func(target string, err error) {
		log.Warn("events could not be sent, they are sent again", "target", target, "error", err)
	})
	queues, err := journal.JournalQueues(ctx)
	if err != nil {
		d.Close()
		return nil, err
	}
	for _, q := range queues {
		if target, ok := targetOfQueue(q.Consumer); ok && !d.Has(q.Consumer) && q.Waiting > 0 {
			log.Warn("events wait for a target that is not in the configuration", "target", target, "events", q.Waiting,
				"fix", "add event_target."+target+" to the configuration")
		}
	}
	return d, nil
}

// targetOfQueue returns the event target of a queue of the journal, or false if the queue is of another part.
func targetOfQueue(consumer string) (string, bool) {
	prefix := sending.Consumer("")
	if len(consumer) > len(prefix) && consumer[:len(prefix)] == prefix {
		return consumer[len(prefix):], true
	}
	return "", false
}

// seldom returns a function that calls f at most once in a time for each target.
func seldom(every time.Duration, f func(target string, err error)) func(string, error) {
	var mu sync.Mutex
	last := map[string]time.Time{}
	return func(target string, err error) {
		mu.Lock()
		now := time.Now()
		due := now.Sub(last[target]) >= every
		if due {
			last[target] = now
		}
		mu.Unlock()
		if due {
			f(target, err)
		}
	}
}

// principalLogging is the principal of the objects of access logs.
const principalLogging = "nebulaio:logging"

// openAccessLogs opens the access logs of buckets. The function front returns the front end, which has the rules for
// new objects.
func openAccessLogs(s *server, st object.Store, front func() *s3api.Server) (*accesslog.Log, error) {
	log := component(s.log, "events")
	return accesslog.Open(accesslog.Options{
		Dir: filepath.Join(s.Config.Data, "accesslog"), Interval: s.Config.Events.LogInterval,
		Put: func(ctx context.Context, t accesslog.Target, key string, body []byte) error {
			return putLog(ctx, st, front(), t, key, body)
		},
		Dropped: func(t accesslog.Target, lines int, why error) {
			log.Error("lines of an access log were dropped", "bucket", t.Source, "target", t.Bucket, "lines", lines, "error",
				why)
		},
		Failed: func(err error) { log.Log(context.Background(), slog.LevelWarn, "an access log waits", "error", err) },
	})
}

// putLog writes an object of an access log, if the target bucket allows the delivery.
func putLog(ctx context.Context, st object.Store, front *s3api.Server, t accesslog.Target, key string,
	body []byte) error {
	ctx = object.WithRequester(context.WithoutCancel(ctx), object.Requester{Principal: principalLogging})
	err := s3api.MayDeliver(ctx, front, t, key)
	rules := front.Authorizer()
	var attrs map[string]string
	if err == nil {
		attrs, err = rules.Describe(ctx, t.Bucket, object.Description{ContentType: "text/plain"})
	}
	if err == nil {
		_, err = st.Put(ctx, object.Put{Bucket: t.Bucket, Key: key, Size: int64(len(body)), Body: bytes.NewReader(body),
			Attributes: attrs, Judge: rules.JudgeWrite()})
	}
	if errors.Is(err, object.ErrNoSuchBucket) {
		return fmt.Errorf("%w: %w", accesslog.ErrGone, err)
	}
	return err
}
