// SPDX-License-Identifier: Apache-2.0

package podvm

import "context"

func (b *builder) writeDisk(context.Context) error { return nil }
