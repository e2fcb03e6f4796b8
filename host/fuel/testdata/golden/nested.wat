;; The inner loop pays for itself: the outer one does not pay for it again. A loop without code of its own
;; cannot go round, so it is free.
(module
  (func (param $n i32)
    (loop $outer
      (loop $inner
        (br_if $inner (local.get $n)))
      (loop $empty)
      (br_if $outer (local.get $n)))))
