// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/console/transfers"
)

// machine answers GET machine. The first look begins a diagnosis.
func (c serverPage) machine() (any, error) {
	s := c.Machine.State()
	if s.When == nil && !s.Running {
		c.Machine.Start()
		s.Running = true
	}
	return s, nil
}

// diagnose answers POST machine/diagnose.
func (c serverPage) diagnose() (any, error) {
	c.Machine.Start()
	return begun{map[string]bool{"running": true}}, nil
}

// fixScript answers GET machine/fix.
func (c serverPage) fixScript() (any, error) {
	gpu, err := c.number("gpu", -1, -1, 1<<16)
	if err != nil {
		return nil, err
	}
	script, ok := c.Machine.Fix(c.query("path"), int(gpu))
	if !ok {
		return nil, &failed{http.StatusNotFound, "NoDiagnosis", "there is no diagnosis of " + quoted(c.query("path")) +
			" for this GPU", "start a diagnosis first"}
	}
	return map[string]string{"script": script, "name": "fix.sh"}, nil
}

// transfers answers GET transfers. Users who are no administrators see their own transfers.
func (c serverPage) transfers() (any, error) {
	limit, err := c.number("limit", 200, 1, transfers.Most)
	if err != nil {
		return nil, err
	}
	after, err := c.number("after", 0, 0, 1<<62)
	if err != nil {
		return nil, err
	}
	q := transfers.Query{Source: transfers.Source(c.query("source")), After: after, Limit: int(limit)}
	if q.Source != "" && q.Source != transfers.S3 && q.Source != transfers.Door {
		return nil, invalid("source is "+quoted(string(q.Source))+"; expected s3 or door", "")
	}
	out := map[string]any{"kept": transfers.Most,
		"note": "Transfers of S3 requests are timed as a whole. Clients of the " +
			"GPUDirect door report their routes and stages themselves, about once a second."}
	if q.Everybody = c.admin(); q.Everybody {
		out["dropped"] = c.Transfers.Dropped()
	} else {
		q.Account = c.user.Account.AccessKey
	}
	out["transfers"] = c.Transfers.List(q)
	return out, nil
}

// cluster answers GET cluster.
func (c serverPage) cluster() (any, error) {
	cache, err := c.Status.Cache(c.r.Context())
	if err != nil {
		return nil, err
	}
	return map[string]any{"cluster": c.Status.Cluster(), "cache": cache}, nil
}

// setting is one setting of the server.
type setting struct {
	Key     string        `json:"key"`
	Value   string        `json:"value"`
	Source  config.Source `json:"source"`
	Type    config.Type   `json:"type"`
	Choices []string      `json:"choices"`
	Default string        `json:"default"`
	Env     string        `json:"env"`
	Flag    string        `json:"flag"`
	Meaning string        `json:"meaning"`
	Secret  bool          `json:"secret"`
}

// config answers GET config. The values of secrets are masked by package config.
func (c serverPage) config() (any, error) {
	all := []setting{}
	for _, v := range c.opts.Config.Values() {
		s := setting{Key: v.Key.Name, Value: v.Text, Source: v.Source, Type: v.Key.Type,
			Choices: append([]string{}, v.Key.Choices...), Default: v.Key.Default, Env: v.Key.Env(), Meaning: v.Key.Help,
			Secret: v.Key.Secret}
		if v.Key.Flag() != "" {
			s.Flag = "--" + v.Key.Flag()
		}
		all = append(all, s)
	}
	return map[string]any{"values": all, "notes": append([]string{}, c.opts.Config.Notes()...),
		"warnings": append([]string{}, c.Status.Warnings()...)}, nil
}
