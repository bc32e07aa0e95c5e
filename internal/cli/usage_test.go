// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestUsageErrors(t *testing.T) {
	path := tinyModel(t)
	const ofLoad = "\n  fix: see: nebulaio load --help\n"
	for _, c := range []struct {
		args string
		want []string
	}{
		{"lod", []string{`unknown command "lod"`,
			"expected bench, ", " load, ", " user, verify, version", "\n  fix: see: nebulaio --help\n"}},
		{"--nope", []string{"unknown flag --nope", "see: nebulaio --help"}},
		{"load", []string{"load: no path given; expected one model file, index or directory", ofLoad}},
		{"load a b", []string{`2 paths given, the second is "b"`, ofLoad}},
		{"load --nope PATH", []string{"load: unknown flag --nope", ofLoad}},
		{"load -q PATH", []string{"load: unknown flag -q", ofLoad}},
		{"load PATH --route", []string{"--route needs a value; expected auto, buffered, direct or cufile", ofLoad}},
		{"load PATH --route fast", []string{`--route "fast" is not accepted; expected auto, buffered, direct or cufile`,
			ofLoad}},
		{"load PATH --cache never", []string{`--cache "never" is not accepted; expected auto, keep or bypass`}},
		{"load PATH --io aio", []string{`--io "aio" is not accepted; expected auto, uring or pread`}},
		{"load PATH --devices maybe", []string{`--devices "maybe" is not accepted; expected auto, require or off`}},
		{"load PATH --device gpu", []string{`"gpu": is not a device; expected auto, host, cuda or cuda:N`}},
		{"load PATH --device cuda:x", []string{`"cuda:x": is not a device`}},
		{"load PATH --repeat 0", []string{`--repeat "0" is not accepted; expected a whole number of 1 or more`}},
		{"load PATH --workers -1", []string{`--workers "-1" is not accepted; expected a whole number of 0 or more`}},
		{"load PATH --workers 9999", []string{"workers=9999", "expected 1 to 256"}},
		{"load PATH --queue-depth many", []string{`--queue-depth "many"`, "expected a whole number of 0 or more"}},
		{"load PATH --buffer-pool-size 1Q",
			[]string{`--buffer-pool-size "1Q" has the unknown unit "Q"; expected a number with an optional unit`}},
		{"load PATH --buffer-pool-size 1K", []string{"buffer_pool_size=1024", "expected 256 KiB to 64 GiB"}},
		{"load PATH --max-transfer-size 2G", []string{"max_transfer_size=2147483648", "expected 64 KiB to 1 GiB"}},
		{"load PATH --json=maybe", []string{`--json "maybe" is not a value of this flag; expected true or false`}},
		{"inspect", []string{"inspect: no path given", "see: nebulaio inspect --help"}},
		{"devices now", []string{`devices: unknown argument "now"; expected only flags`}},
		{"version 2", []string{`version: unknown argument "2"`}},
		{"generate", []string{"generate: --shapes is not given; expected qwen3-0.6b, qwen2.5-7b or tiny",
			"see: nebulaio generate --help"}},
		{"generate --shapes tiny", []string{"--out is not given; expected a path to write"}},
		{"generate --shapes huge --out x",
			[]string{`--shapes "huge" is not accepted; expected qwen3-0.6b, qwen2.5-7b or tiny`}},
		{"generate --shapes tiny --out x --seed -1",
			[]string{`--seed "-1" is not accepted; expected a whole number from 0 to 2^64-1`}},
		{"generate --shapes tiny --out x --align 3", []string{"3", "multiple of 8"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(c.args, "PATH", path))
			r := run(t, args)
			r.want(t, 2, c.want...)
			if n := strings.Count(r.stderr, "\n"); n > 2 || r.out != "" {
				t.Errorf("%d lines on stderr and %d bytes on stdout, want 2 at most and none", n, len(r.out))
			}
		})
	}
}

func TestDidYouMean(t *testing.T) {
	path := tinyModel(t)
	for args, want := range map[string]string{
		"lod":                     "(did you mean load?)",
		"server --adress x":       "unknown flag --adress (did you mean --address?)",
		"load PATH --rout direct": "unknown flag --rout (did you mean --route?)",
		"store chek":              `store: unknown command "chek"; expected backup, check, quarantine, restore, salvage, scrub or stats (did you mean check?)`,
		"store quarantine lst":    "(did you mean list?)",
		"user ad":                 "(did you mean add?)",
		"store chek --data x":     `store: unknown command "chek"; expected backup, check`,
		"user grnt --data x":      "(did you mean grant?)",
		"store --data x": "store: unknown flag --data; expected a command before its flags: " +
			"backup, check, quarantine, restore, salvage, scrub or stats",
		"bench raed --size 1MiB PATH":                "(did you mean read?)",
		"help sever":                                 "(did you mean server?)\n  fix: see: nebulaio --help",
		"help bench raed":                            `bench: unknown command "raed"`,
		"help store quarantine lst":                  "(did you mean list?)",
		"gpudirect statsu":                           "(did you mean status?)",
		"bench raed":                                 "(did you mean read?)",
		"bench sweep patern PATH":                    "(did you mean pattern?)",
		"bench read PATH --route bufered":            "(did you mean buffered?)",
		"bench read PATH --to pined":                 "(did you mean pinned?)",
		"bench train PATH --workload resnet":         "(did you mean resnet50?)",
		"load PATH --route drect":                    `--route "drect" is not accepted; expected auto, buffered, direct or cufile (did you mean direct?)`,
		"load PATH --cache kepe":                     "(did you mean keep?)",
		"load PATH --device gpu":                     "(did you mean cuda?)",
		"load PATH --device gpu1":                    "(did you mean cuda:1?)",
		"load PATH --device cuda0":                   "(did you mean cuda:0?)",
		"load PATH --device hots":                    "(did you mean host?)",
		"load PATH --devices requrie":                "(did you mean require?)",
		"generate --shapes qwen3-0.6 --out x":        "(did you mean qwen3-0.6b?)",
		"config --log-level inf":                     "(did you mean info?)",
		"config --etag md":                           "(did you mean md5?)",
		"completion bahs":                            "(did you mean bash?)",
		"doctor PATH --profile trian":                "(did you mean train?)",
		"user add somebody --role admn --data ./new": "(did you mean admin?)",
	} {
		run(t, strings.Fields(strings.ReplaceAll(args, "PATH", path))).want(t, 2, want)
	}
	for _, args := range []string{"frobnicate", "load PATH --frobnicate", "load PATH --route zzzz", "store zzzz",
		"load PATH --device zzzz"} {
		if r := run(t, strings.Fields(strings.ReplaceAll(args, "PATH", path))); r.code != 2 ||
			strings.Contains(r.stderr, "did you mean") {
			t.Errorf("%s: exit code %d, %s", args, r.code, r.stderr)
		}
	}
}

func TestUsageErrorAsJSON(t *testing.T) {
	for _, args := range [][]string{{"load", "--route", "fast", "--json", "x"}, {"load", "--json=true", "--nope"}} {
		r := run(t, args)
		r.want(t, 2)
		if e := decode[errorJSON](t, r).Error; e.Kind != "invalid" || e.Message == "" ||
			e.Fix != "see: nebulaio load --help" {
			t.Errorf("%v: %+v", args, e)
		}
	}
	for _, args := range [][]string{{"load", "--json=false", "--nope"}, {"load", "--nope", "--", "--json"}} {
		if r := run(t, args); r.out != "" {
			t.Errorf("%v printed %q", args, r.out)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"load", "--help"}, {"help", "inspect"}} {
		run(t, args).want(t, 0, "Usage:\n  nebulaio")
	}
	run(t, []string{"load", "--help"}).want(t, 0, "[NEBULAIO_BUFFER_POOL_SIZE]", "[NEBULAIO_DEVICE]")
	run(t, []string{"--version"}).want(t, 0, "nebulaio ")
}

// TestPrecedence: a flag wins over its variable, which wins over the default.
func TestPrecedence(t *testing.T) {
	path := tinyModel(t)
	type got struct {
		Loads []struct {
			Asked  map[string]string `json:"asked"`
			Engine map[string]any    `json:"engine"`
		} `json:"loads"`
	}
	engine := func(key string) func(got) any { return func(g got) any { return g.Loads[0].Engine[key] } }
	asked := func(key string) func(got) any { return func(g got) any { return g.Loads[0].Asked[key] } }
	for _, c := range []struct {
		flag, env         string
		read              func(got) any
		inEnv, inFlag     string
		def, byEnv, byArg any
	}{
		{"--max-transfer-size", "NEBULAIO_MAX_TRANSFER_SIZE", engine("chunk_size"), "1MiB", "128K", 2097152.0, 1048576.0,
			131072.0},
		{"--buffer-pool-size", "NEBULAIO_BUFFER_POOL_SIZE", engine("chunk_size"), "1MiB", "512KiB", 2097152.0, 262144.0,
			131072.0},
		{"--queue-depth", "NEBULAIO_QUEUE_DEPTH", engine("queue_depth"), "3", "2", 16.0, 3.0, 2.0},
		{"--workers", "NEBULAIO_WORKERS", engine("workers"), "1", "3", nil, 1.0, 3.0},
		{"--route", "NEBULAIO_ROUTE", asked("route"), "buffered", "auto", "auto", "buffered", "auto"},
		{"--cache", "NEBULAIO_CACHE", asked("cache"), "keep", "bypass", "auto", "keep", "bypass"},
	} {
		t.Run(c.flag, func(t *testing.T) {
			args := []string{"load", path, "--device", "host", "--json"}
			both := append(args, c.flag, c.inFlag)
			for _, step := range []struct {
				source string
				value  string
				args   []string
				want   any
			}{
				{"default", "", args, c.def},
				{"blank variable", " ", args, c.def},
				{"variable", c.inEnv, args, c.byEnv},
				{"flag and variable", c.inEnv, both, c.byArg},
				{"flag and bad variable", "?", both, c.byArg},
			} {
				r := run(t, step.args, env(map[string]string{c.env: step.value}))
				r.want(t, 0)
				if v := c.read(decode[got](t, r)); step.want != nil && v != step.want {
					t.Errorf("%s: %v, want %v", step.source, v, step.want)
				}
			}
			r := run(t, args, env(map[string]string{c.env: "?"}))
			r.want(t, 2, `the environment variable `+c.env+` is "?", which `, "expected ",
				"\n  fix: correct or unset it, or give "+c.flag+"\n")
		})
	}
}

func TestPrecedenceOfDevices(t *testing.T) {
	path := tinyModel(t)
	off := map[string]string{"NEBULAIO_DEVICES": "off", "NEBULAIO_DEVICE": "cuda"}
	run(t, []string{"load", path}, env(off)).want(t, 3, "cuda:0", "the mode is off")
	run(t, []string{"load", path, "--device", "host"}, env(off)).want(t, 0, "device    host")
	run(t, []string{"devices"}, env(off)).want(t, 0, "the mode is off", "mode      off")
	run(t, []string{"devices", "--devices", "auto"}, env(off)).want(t, 0, "mode      auto")
	run(t, []string{"load", path}, env(map[string]string{"NEBULAIO_DEVICE": "gpu"})).
		want(t, 2, `the environment variable NEBULAIO_DEVICE is "gpu", which is not a device; expected auto`,
			"did you mean cuda?")
	run(t, []string{"bench", "read", path}, env(map[string]string{"NEBULAIO_DEVICE": "cuda:x"})).want(t, 2,
		`NEBULAIO_DEVICE is "cuda:x"`)
	run(t, []string{"load", path, "--device", "host"}, env(map[string]string{"NEBULAIO_IO": "aio"})).want(t, 2,
		"NEBULAIO_IO", `"aio"`, "auto, uring or pread")
}

// A command that only has commands below it is refused alone: scripts must not take its help for a result.
func TestGroupsAreRefusedAlone(t *testing.T) {
	for _, name := range []string{"bench", "store", "user", "gpudirect"} {
		r := run(t, []string{name})
		r.want(t, 2, "no command given; expected ")
		if r.out != "" {
			t.Errorf("%s alone prints %q", name, r.out)
		}
	}
}
