// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package breaker

import (
	"errors"

	"github.com/refract-project/refract/internal/apifailure"
)

// Lost reports whether a call was made but got no response. See apifailure.IsLost.
func Lost(err error) bool { return !errors.Is(err, ErrUnreachable) && apifailure.IsLost(err) }
