;; Panics.
;; want: TrapError: unreachable
(func $bad unreachable)
