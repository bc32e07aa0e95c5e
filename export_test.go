// SPDX-License-Identifier: Apache-2.0

package nebulaio

import "fmt"

// PartsText describes the options of the engine and the devices that o leads to, for tests.
func (o Options) PartsText() string { return fmt.Sprintf("%+v", o.parts()) }
