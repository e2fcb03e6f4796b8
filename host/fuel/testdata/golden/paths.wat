;; A charge pays for the longest way to the next one. What follows a branch and is long pays for itself.
(module
  (func $switch (param $n i32)
    (block $end
      (block $two
        (block $one
          (br_table $one $two $end (local.get $n)))
        nop nop nop
        (br $end))
      nop nop)
    nop)
  (func $return (param $n i32)
    (if (local.get $n)
      (then (return)))
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop)
  (func $arms (param $n i32)
    (if (local.get $n)
      (then
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop)
      (else nop))
    (block $end
      (br_if $end (local.get $n))
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop)
    nop))
