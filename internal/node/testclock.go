// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/lifecycle"
)

// Variables for tests of lifecycle rules and inventories. They change only the clock of these background tasks.
const (
	// testAhead is how far the clock is ahead, such as 240h.
	testAhead = "NEBULAIO_TEST_CLOCK_AHEAD"
	// testDay is the length of a day of lifecycle rules, such as 10s.
	testDay = "NEBULAIO_TEST_LIFECYCLE_DAY"
)

// dataClock returns the clock and the calendar of the tasks that manage data. Both are the real ones, unless a variable
// for tests is set. The list warnings names the variables that are set.
func dataClock() (now func() time.Time, cal lifecycle.Calendar, warnings []string, err error) {
	ahead, err := testDuration(testAhead)
	if err != nil {
		return nil, cal, nil, err
	}
	if cal.Day, err = testDuration(testDay); err != nil {
		return nil, cal, nil, err
	}
	for _, name := range []string{testAhead, testDay} {
		if text := os.Getenv(name); text != "" {
			warnings = append(warnings,
				fmt.Sprintf("%s=%s makes lifecycle rules remove objects too early: it is for tests alone", name, text))
		}
	}
	return func() time.Time { return time.Now().Add(ahead) }, cal, warnings, nil
}

func testDuration(name string) (time.Duration, error) {
	text := os.Getenv(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, errs.New(errs.Invalid, "read the environment variable", name,
			fmt.Sprintf("%q is no positive duration, expected one such as 10s or 240h", text)).WithFix("unset " + name)
	}
	return d, nil
}
