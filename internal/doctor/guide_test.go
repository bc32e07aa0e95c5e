// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheGuideAgrees compares docs/guide/gpudirect-storage.md with the fix script and the rules: the same commands, the
// same order, the same versions.
func TestTheGuideAgrees(t *testing.T) {
	source, err := os.ReadFile("../../docs/guide/gpudirect-storage.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(source)
	rules, err := parseRules(rulesJSON)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, title := range append([]string{"packages that conflict"}, titles()...) {
		if title == "GPUDirect Storage" {
			title = "### 4. Install GPUDirect Storage"
		} else {
			title = "`" + title + "`"
		}
		i := strings.Index(page[at:], title)
		if i < 0 {
			t.Fatalf("the page does not name the part %s after byte %d", title, at)
		}
		at += i
	}

	commands := []string{lastLine(purge), install, "modprobe nvidia-fs"}
	for _, id := range []string{"nvfs.loaded", "peermem", "p2p.regkeys", "p2p.multipath"} {
		command, _, _ := strings.Cut(rules.byID[id].FixBoot, " && update-initramfs")
		commands = append(commands, command)
	}
	commands = append(commands, rules.byID["nvfs.modules"].FixBoot)
	for _, command := range commands {
		if !strings.Contains(page, "\n"+command+"\n") {
			t.Errorf("the page has no line %q", command)
		}
	}

	for id, names := range map[string][]string{
		"drv.p2pdma_min": {"driver"}, "p2p.cufile": {"least"}, "ofed": {"least"}, "drv.open": {"nvfs_since"},
		"nvfs.version": {"kernel", "kernel_needs", "new_kernel", "new_kernel_needs", "rdma_needs"},
		"p2p.topology": {"raid0_kernel", "raid1_kernel"},
	} {
		for _, name := range names {
			if text := fmt.Sprint(rules.byID[id].Values[name].Value); !strings.Contains(page, " "+text) {
				t.Errorf("the page does not name %s of %s: %s", name, id, text)
			}
		}
	}
	models := fmt.Sprint(rules.byID["p2p.model"].Values["models"].Value)
	if list := strings.ReplaceAll(strings.Trim(models, "[]"), " ", ", "); !strings.Contains(
		strings.ReplaceAll(page, "\n  ", " "), list+".") {
		t.Errorf("the page does not list the GPUs %s", list)
	}

	ids := 0
	for _, found := range regexp.MustCompile("`([a-z0-9]+(?:[.][a-z0-9_]+)+)`").FindAllStringSubmatch(page, -1) {
		if group, _, _ := strings.Cut(found[1], "."); groups(rules)[group] && rules.byID[found[1]] == nil &&
			!strings.HasSuffix(found[1], ".json") {
			t.Errorf("the page names the check %s, which does not exist", found[1])
		} else if rules.byID[found[1]] != nil {
			ids++
		}
	}
	if ids < 8 {
		t.Errorf("only %d checks are named", ids)
	}
}

// titles returns the titles of the fix script's parts in order.
func titles() (out []string) {
	for _, p := range parts() {
		out = append(out, p.title)
	}
	return out
}

// lastLine returns the command in the last line of a comment.
func lastLine(comment string) string {
	lines := strings.Split(strings.TrimSpace(comment), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "# ")
}

// groups returns the first words of the ids of rules.
func groups(r *ruleSet) map[string]bool {
	out := map[string]bool{}
	for id := range r.byID {
		group, _, _ := strings.Cut(id, ".")
		out[group] = true
	}
	return out
}
